package facts

import "testing"

// A pod that is not a Deployment's, or whose name could be a word, says nothing about a hash.
func TestNamesThatAreNotOfADeploymentsPod(t *testing.T) {
	for pod, hash := range map[string]string{
		"op-5d4f6b7c8b-x2k4l":         "5d4f6b7c8b",
		"my-fine-op-5d4f6b7c8b-x2k4l": "5d4f6b7c8b",
		"op":                          "",
		"op-0":                        "",
		"op-5d4f6b7c8b-00000000":      "", // on an existing cluster the suffix is a part of the UID
		"op-controller-x2k4l":         "",
		"5d4f6b7c8b-x2k4l":            "",
	} {
		n := newNames()
		n.notePod("op", pod)
		if got := len(n.hashes) == 1 && n.hashes[hash]; got != (hash != "") || hash == "" && len(n.generated) > 0 {
			t.Errorf("%s: hashes %v, names %v", pod, n.hashes, n.generated)
		}
	}
}
