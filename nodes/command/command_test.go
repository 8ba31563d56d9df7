package command

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trommel-dev/trommel/nodes/provider"
)

func TestCommand(t *testing.T) {
	none := func(ctrl.Manager) (provider.Provider, error) { panic("it is not made before a cluster is found") }
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--provider", "gcp"}, `unknown provider "gcp" (known: aws, simulated)`},
		{[]string{"--poll", "soon"}, `invalid argument "soon" for "--poll" flag`},
		{[]string{"--kubeconfig", "/does/not/exist"}, "/does/not/exist: no such file"},
		{[]string{"more"}, `unknown command "more" for "trommel-nodes"`},
	} {
		cmd := New(map[string]Provider{"simulated": {New: none}, "aws": {New: none}})
		cmd.SetArgs(test.args)
		cmd.SilenceErrors = true
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %s", test.args, err, test.want)
		}
	}
}

// Without a flag, only requests of the controllers' own namespace are carried out.
func TestServed(t *testing.T) {
	own := filepath.Join(t.TempDir(), "namespace")
	if err := os.WriteFile(own, []byte("trommel-nodes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		named []string
		own   string
		want  []string
		err   string
	}{
		{nil, own, []string{"trommel-nodes"}, ""},
		{[]string{"a", "b"}, own, []string{"a", "b"}, ""},
		{[]string{"*"}, own, nil, ""},
		{[]string{"a", "*"}, own, nil, "--namespaces a,*: * means all of them"},
		{nil, own + "-none", nil, "outside of a pod, say whose requests are carried out: --namespaces NAMESPACE, or " +
			"* for those of all namespaces"},
	} {
		got, err := served(test.named, test.own)
		if !slices.Equal(got, test.want) || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%v: %v, %v", test.named, got, err)
		}
	}
}
