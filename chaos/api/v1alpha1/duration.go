package v1alpha1

import "time"

// Duration is a time span as text, such as 1h, 2.5s or 300ms. It keeps its text: a client that reads 1h and writes
// 1h0m0s would change a spec that cannot be changed.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:Pattern=`^([0-9]+([.][0-9]+)?(ms|s|m|h))+$`
type Duration string

// DurationOf returns the duration as text.
func DurationOf(d time.Duration) Duration { return Duration(d.String()) }

// Duration returns the time span. It is 0 for a text that the API server would refuse.
func (d Duration) Duration() time.Duration {
	parsed, err := time.ParseDuration(string(d))
	if err != nil || parsed < 0 {
		return 0
	}
	return parsed
}
