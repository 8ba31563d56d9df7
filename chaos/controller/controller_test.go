package controller

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
)

func TestPodName(t *testing.T) {
	long := strings.Repeat("a.very-long.name", 15)
	names := map[string]bool{}
	for _, target := range []struct {
		level           chaos.Level
		namespace, name string
	}{
		{chaos.LevelPod, "default", "web-0"}, {chaos.LevelPod, "other", "web-0"}, {chaos.LevelNode, "default", "web-0"},
		{chaos.LevelPod, "default", long + "1"}, {chaos.LevelPod, "default", long + "2"},
		{chaos.LevelNode, "default", "ip-10-0-0-1.eu-central-1.compute.internal"},
	} {
		for _, kind := range []chaos.Kind{chaos.KindContainerFailure, chaos.KindDNS} {
			name := PodName(target.level, target.namespace, target.name, kind)
			if problems := validation.IsDNS1123Label(name); len(problems) > 0 || names[name] {
				t.Errorf("%s for %+v: %v", name, target, problems)
			}
			names[name] = true
		}
	}
	// A disruption of nodes has a namespace; nodes have none.
	if PodName(chaos.LevelNode, "default", "n", "dns") != PodName(chaos.LevelNode, "other", "n", "dns") {
		t.Error("a node can be disrupted twice")
	}
	name := PodName(chaos.LevelPod, "default", "web-0", "apiFault")
	if !strings.HasPrefix(name, "chaos-apifault-web-0-") {
		t.Error(name)
	}
}
