package baseline

import (
	"fmt"
	"testing"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// The API server makes five letters or digits. StatefulSets set generateName too, and name their pods themselves.
func TestNamesThatAreNotGenerated(t *testing.T) {
	for name, want := range map[string]string{"web-0": "pod/default/web-0", "web-x7k2q": "pod/default/web-#1"} {
		r := story(t, `created pod/default/`+name+` {"metadata": {"generateName": "web-", "uid": "u"}}`)
		all, err := facts.Changes(r)
		if err != nil {
			t.Fatal(err)
		}
		if all[0].Key != facts.Key(want) || all[0].Generated != (name != "web-0") {
			t.Errorf("%s has the key %s (generated: %t), want %s", name, all[0].Key, all[0].Generated, want)
		}
	}
}

// Regression: an operator copied its own pod's labels into the selector of a Service, and the hash of its pod template
// was another one in the runs with faults: "differs from the runs without faults: spec.selector.pod-template-hash".
func TestControllersOwnPodTemplateHash(t *testing.T) {
	const (
		own = `"annotations": {"trommel.dev/controller": "db"}`
		// The numbers of two templates, as Kubernetes writes them.
		one, two, third = "5d4f6b7c8b", "7f9c8d6b5f", "6b8d4c9f7d"
	)
	controllers := func(hash, pod string) []string {
		labels := fmt.Sprintf(`"labels": {"app": "op", "pod-template-hash": %q}`, hash)
		return []string{
			`existing deployment/op/op {"metadata": {"uid": "of the deployment"},
				"spec": {"template": {"metadata": {` + own + `}}}}`,
			fmt.Sprintf(`existing replicaset/op/op-%s {"metadata": {"uid": "set %s", %s},
				"spec": {"template": {"metadata": {%s}}}}`, hash, hash, labels, own),
			fmt.Sprintf(`existing pod/op/%s {"metadata": {"uid": "11111111-2222-3333-4444-%s55",
				"generateName": "op-%s-", %s, %s}, "status": {"podIP": "10.0.0.7"}}`,
				pod, hashDigits[hash], hash, labels, own),
		}
	}
	makes := func(h hashed) []string {
		return []string{
			fmt.Sprintf(`db: created service/default/s {"spec": {"selector": {"app": "op", "pod-template-hash": %q}}}`,
				h.selector),
			fmt.Sprintf(`db: created configmap/default/c {"metadata": {"ownerReferences": [{"kind": "ReplicaSet",
				"name": "op-%s", "uid": "x"}]}, "data": {"name": %q, "leader": %q}}`, h.owner, h.name, h.leader),
		}
	}
	same := func(hash, pod string) hashed { return hashed{hash, hash, "data-op-" + hash, pod} }
	podOf := func(hash, suffix string) string { return "op-" + hash + "-" + suffix }
	run := func(hash, pod string, h hashed) *record.Run {
		return story(t, append(controllers(hash, pod), makes(h)...)...)
	}
	first, second := podOf(one, "x2k4l"), podOf(one, "bb9df")
	ref := learn(t, run(one, first, same(one, first)), run(one, second, same(one, second)))

	other := podOf(two, "z8v5m")
	if got := compare(t, ref, run(two, other, same(two, other))); len(got) != 0 {
		t.Errorf("another hash of the controller's own template: %q", got)
	}
	for name, h := range map[string]hashed{
		"the selector":         {third, two, "data-op-" + two, other},
		"the owner":            {two, third, "data-op-" + two, other},
		"part of a value":      {two, two, "data-op-" + third, other},
		"another one's pod":    {two, two, "data-op-" + two, podOf(third, "z8v5m")},
		"no hash, but a name":  {"web", two, "data-op-" + two, other},
		"the hash of last run": {one, two, "data-op-" + two, other},
	} {
		if got := compare(t, ref, run(two, other, h)); len(got) == 0 {
			t.Errorf("%s has the hash of something else, and does not differ", name)
		}
	}

	// If controllers read no pods, the record has none, but it has the names of the processes' pods.
	named := func(hash, pod string, h hashed) *record.Run {
		r := story(t, makes(h)...)
		r.Processes = []record.Process{{Controller: "db", Namespace: "op", Pod: pod}}
		return r
	}
	ref = learn(t, named(one, first, same(one, first)), named(one, second, same(one, second)))
	if got := compare(t, ref, named(two, other, same(two, other))); len(got) != 0 {
		t.Errorf("another hash, and no pods in the record: %q", got)
	}
	if got := compare(t, ref, named(two, other, hashed{third, two, "data-op-" + two, other})); len(got) != 1 {
		t.Errorf("the selector of something else: %q", got)
	}
}

// hashed is what a controller makes of the labels and the name of its own pod.
type hashed struct{ selector, owner, name, leader string }

// hashDigits make UIDs of pods.
var hashDigits = map[string]string{"5d4f6b7c8b": "0000000001", "7f9c8d6b5f": "0000000002"}
