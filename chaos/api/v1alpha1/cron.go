package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DisruptionCron creates disruptions at the times of a schedule.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=discron,categories=chaos
// +kubebuilder:printcolumn:name=Schedule,type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name=Suspend,type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name=Last,type=date,JSONPath=`.status.lastScheduleTime`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type DisruptionCron struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DisruptionCronSpec `json:"spec"`
	// +optional
	Status DisruptionCronStatus `json:"status,omitempty"`
}

// DisruptionCronList is a list of DisruptionCrons.
//
// +kubebuilder:object:root=true
type DisruptionCronList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DisruptionCron `json:"items"`
}

// DisruptionCronSpec says which disruptions are created, and when.
type DisruptionCronSpec struct {
	// Schedule in cron's format, in UTC; also @hourly and the like.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Schedule string `json:"schedule"`
	// DelayedStartTolerance is how late a disruption may begin; a time that was missed by more is skipped.
	// +optional
	DelayedStartTolerance *Duration `json:"delayedStartTolerance,omitempty"`
	// Suspend creates no new disruptions.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
	// History is the number of times kept in the status.
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	History *int32 `json:"history,omitempty"`
	// Disruption is the spec of the disruptions. While one of them exists, no other is created.
	Disruption DisruptionSpec `json:"disruption"`
}

// DisruptionCronStatus is written by the controller.
type DisruptionCronStatus struct {
	// LastScheduleTime is the last time of the schedule that was handled.
	// +optional
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`
	// Message says what is wrong, for instance with the schedule.
	// +optional
	Message string `json:"message,omitempty"`
	// History of the times handled, newest first.
	// +optional
	// +listType=atomic
	History []CronRun `json:"history,omitempty"`
}

// CronRun is one time of a schedule.
type CronRun struct {
	Time metav1.Time `json:"time"`
	// Disruption that was created; empty if the time was skipped.
	// +optional
	Disruption string `json:"disruption,omitempty"`
	// Skipped says why none was created.
	// +optional
	Skipped string `json:"skipped,omitempty"`
}
