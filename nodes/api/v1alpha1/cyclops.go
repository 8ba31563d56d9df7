package v1alpha1

import (
	"reflect"

	"k8s.io/apimachinery/pkg/util/json"
)

// CyclopsTLS is TLSConfig with the names that its fields have in Cyclops.
//
// +kubebuilder:validation:XValidation:rule="has(self.crt) == has(self.key)",message="crt and key belong together"
type CyclopsTLS struct {
	// +optional
	RootCA string `json:"rootCA,omitempty"`
	// +optional
	Crt string `json:"crt,omitempty"`
	// +optional
	Key string `json:"key,omitempty"`
}

// UnmarshalJSON decodes a spec in which fields may have the names that they have in Cyclops: cycleNodeSettings,
// triggerEndpoint and tls. Their values are moved into our fields. If a field is given under both names, both stay as
// they are: see BothNames. That is not an error here, because one wrong object would make a whole list undecodable.
func (s *CycleNodeRequestSpec) UnmarshalJSON(text []byte) error {
	type plain CycleNodeRequestSpec // has no UnmarshalJSON
	var decoded plain               // not s, which may have values of an earlier decoding
	if err := json.Unmarshal(text, &decoded); err != nil {
		return err
	}
	*s = CycleNodeRequestSpec(decoded)
	for _, n := range s.names() {
		if n.cyclops.given && !n.ours.given {
			n.move()
		}
	}
	return nil
}

// BothNames lists the fields of a decoded spec that are given under our name and under Cyclops', such as
// "cycleSettings and cycleNodeSettings". The API server refuses such a spec.
func (s *CycleNodeRequestSpec) BothNames() []string {
	var both []string
	for _, n := range s.names() {
		if n.cyclops.given && n.ours.given {
			both = append(both, n.ours.name+" and "+n.cyclops.name)
		}
	}
	return both
}

// names are a field of a spec that has another name in Cyclops.
type names struct {
	ours, cyclops struct {
		name  string
		given bool
	}
	move func() // from Cyclops' name to ours
}

func namesOf(ours, cyclops string, oursGiven, cyclopsGiven bool, move func()) names {
	n := names{move: move}
	n.ours.name, n.ours.given = ours, oursGiven
	n.cyclops.name, n.cyclops.given = cyclops, cyclopsGiven
	return n
}

func (s *CycleNodeRequestSpec) names() []names {
	all := []names{namesOf("cycleSettings", "cycleNodeSettings",
		!reflect.ValueOf(s.CycleSettings).IsZero(), s.CycleNodeSettings != nil,
		func() { s.CycleSettings, s.CycleNodeSettings = *s.CycleNodeSettings, nil })}
	tls := func(ours *TLSConfig, cyclops **CyclopsTLS) {
		all = append(all, namesOf("tlsConfig", "tls", *ours != TLSConfig{}, *cyclops != nil, func() {
			*ours = TLSConfig{RootCA: (*cyclops).RootCA, Certificate: (*cyclops).Crt, Key: (*cyclops).Key}
			*cyclops = nil
		}))
	}
	for i := range s.HealthChecks {
		tls(&s.HealthChecks[i].TLSConfig, &s.HealthChecks[i].TLS)
	}
	for i := range s.PreTerminationChecks {
		c := &s.PreTerminationChecks[i]
		all = append(all, namesOf("endpoint", "triggerEndpoint", c.Endpoint != "", c.TriggerEndpoint != "",
			func() { c.Endpoint, c.TriggerEndpoint = c.TriggerEndpoint, "" }))
		tls(&c.TLSConfig, &c.TLS)
		tls(&c.HealthCheck.TLSConfig, &c.HealthCheck.TLS)
	}
	return all
}
