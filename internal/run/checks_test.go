package run

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/run/builds"
	"github.com/trommel-dev/trommel/plan"
)

// answering is the discovery of a cluster.
type answering struct {
	version string
	groups  []string // with versions
}

func (a answering) ServerVersion() (*version.Info, error) {
	return &version.Info{GitVersion: a.version}, nil
}

func (a answering) ServerGroups() (*metav1.APIGroupList, error) {
	list := new(metav1.APIGroupList)
	for _, g := range a.groups {
		versions := []metav1.GroupVersionForDiscovery{{GroupVersion: g}}
		list.Groups = append(list.Groups, metav1.APIGroup{Versions: versions})
	}
	return list, nil
}

func TestChecks(t *testing.T) {
	yes, no := true, false
	old := []builds.Binary{{Manifest: &wire.Manifest{Points: []wire.CompiledPoint{
		{Module: "k8s.io/client-go", Version: "v0.20.0"},
	}}}}
	const removed = "rbac.authorization.k8s.io/v1beta1"
	const also = "the cluster also serves API versions that Kubernetes has removed"
	for _, test := range []struct {
		name     string
		answer   answering
		plan     plan.Action
		cluster  plan.ClusterSpec
		binaries []builds.Binary
		note     string
		err      string
	}{
		{name: "as it should be", answer: answering{version: "v1.36.2"}, plan: plan.Action{Target: "apiserver-1"}},
		{name: "a minor version", answer: answering{version: "v1.36.2"},
			cluster: plan.ClusterSpec{KubernetesVersion: "1.36"}},
		{name: "another version", answer: answering{version: "v1.36.2"},
			cluster: plan.ClusterSpec{KubernetesVersion: "v1.35"},
			err:     `s.yaml: cluster "c" runs Kubernetes v1.36.2; the suite's kubernetesVersion is v1.35`},
		{name: "an API server that is not there", plan: plan.Action{Target: "apiserver-3"},
			err: `p.yaml: action 1: actionTarget apiserver-3: cluster "c" has apiserver-1, apiserver-2 only`},
		{name: "removed versions", answer: answering{groups: []string{"apps/v1", removed}}, note: also},
		{name: "removed versions, for a controller", answer: answering{groups: []string{removed}}, binaries: old,
			note: also + ": op has client-go v0.20.0, older than 0.25 (`removedAPIs: false` in the suite's cluster " +
				"turns this off)"},
		{name: "removed versions are missing", binaries: old,
			note: `cluster "c" does not serve API versions that Kubernetes has removed, and op has client-go ` +
				`v0.20.0, older than 0.25; if it needs them, start the cluster with --removed-apis`},
		{name: "removed versions are missing, and the suite wants them", cluster: plan.ClusterSpec{RemovedAPIs: &yes},
			err: "s.yaml: removedAPIs is true, but cluster \"c\" does not serve them; " +
				"`trommel cluster up --removed-apis` starts one that does"},
		{name: "removed versions, and the suite does not want them", cluster: plan.ClusterSpec{RemovedAPIs: &no},
			answer: answering{groups: []string{removed}},
			err:    `s.yaml: removedAPIs is false, but cluster "c" serves them`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &served{cluster: "c", apiServers: []string{"apiserver-1", "apiserver-2"}}
			p := &plan.Plan{File: "p.yaml", Actions: []plan.Action{test.plan}}
			suite := &plan.Suite{File: "s.yaml", Cluster: test.cluster}
			if test.binaries != nil {
				suite.Controllers = []plan.Controller{{Name: "op"}}
			}
			err := errors.Join(s.checkServers(p), s.askVersion(test.answer), s.checkVersion(suite),
				s.askRemovedAPIs(test.answer))
			note, last := s.checkRemovedAPIs(suite, test.binaries)
			text := ""
			if err = errors.Join(err, last); err != nil {
				text = err.Error()
				var users *UserError
				if !errors.As(err, &users) {
					t.Errorf("%v is not the user's", err)
				}
			}
			if note != test.note || text != test.err {
				t.Errorf("note %q\nerror %q", note, text)
			}
		})
	}
}

func TestClockThatAPlanNeeds(t *testing.T) {
	const rest = " needs a cluster with a clock of its own; cluster \"c\" goes by this machine's"
	calm := plan.Action{Type: plan.KillController, Target: "op"}
	for _, test := range []struct {
		actions []plan.Action
		steps   []plan.Step
		want    string
	}{
		{actions: []plan.Action{calm}, steps: []plan.Step{{Sleep: time.Hour}}},
		{actions: []plan.Action{calm, {Type: plan.AdvanceTime, Own: &plan.Clocking{By: 1}}},
			want: "p.yaml: action 2: advanceTime" + rest},
		{actions: []plan.Action{{Type: plan.SkewClock, Own: &plan.Clocking{By: -1}}},
			want: "p.yaml: action 1: skewClock" + rest},
		{actions: []plan.Action{{Type: plan.EndSkew, Target: "op"}}, want: "p.yaml: action 1: endSkew" + rest},
		{steps: []plan.Step{{Sleep: 1}, {AdvanceTime: 1}}, want: "p.yaml: step 2 of the workload: advanceTime" + rest},
	} {
		p := &plan.Plan{File: "p.yaml", Actions: test.actions}
		text := ""
		if err := (&served{cluster: "c"}).checkClock(p, test.steps); err != nil {
			text = err.Error()
		}
		if text != test.want {
			t.Errorf("got %q, want %q", text, test.want)
		}
		if err := (&served{clock: clock.New()}).checkClock(p, test.steps); err != nil {
			t.Error(err)
		}
	}
}
