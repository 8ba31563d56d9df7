package command

import (
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
