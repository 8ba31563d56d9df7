package existing

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/cluster"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: staging
clusters:
- {name: staging, cluster: {server: "https://10.0.0.1:6443"}}
- {name: eu-prod-1, cluster: {server: "https://10.0.0.2:6443"}}
- {name: plain, cluster: {server: "https://api.live.example.com"}}
users:
- {name: me, user: {token: abc}}
contexts:
- {name: staging, context: {cluster: staging, user: me}}
- {name: other, context: {cluster: eu-prod-1, user: me}}
- {name: hidden, context: {cluster: plain, user: me}}
- {name: prd2, context: {cluster: staging, user: me}}
- {name: broken, context: {cluster: nowhere, user: me}}
`

func TestChoose(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("clusters: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		config cluster.JoinConfig
		want   string // empty: it is taken
	}{
		{"taken", cluster.JoinConfig{Kubeconfig: file, Context: "staging"}, ""},
		{"no file", cluster.JoinConfig{Kubeconfig: file + "x", Context: "staging"},
			"there is no kubeconfig " + file + "x"},
		{"invalid", cluster.JoinConfig{Kubeconfig: bad, Context: "staging"}, "the kubeconfig " + bad + " is invalid"},
		{"the current context is not taken", cluster.JoinConfig{Kubeconfig: file},
			"the kubeconfig's current one is never taken (" + file + ": it has: broken, hidden, other, prd2, staging)"},
		{"unknown context", cluster.JoinConfig{Kubeconfig: file, Context: "stagin"},
			`has no context "stagin" (it has: broken`},
		{"no cluster", cluster.JoinConfig{Kubeconfig: file, Context: "broken"}, `context "broken" of the kubeconfig`},
		{"production by its context", cluster.JoinConfig{Kubeconfig: file, Context: "prd2"},
			`the context "prd2" looks like production (prd)`},
		{"production by its cluster", cluster.JoinConfig{Kubeconfig: file, Context: "other"},
			`the cluster "eu-prod-1" looks like production (prod); name the context on the command line if it is ` +
				`really meant: --context other`},
		{"production by its server", cluster.JoinConfig{Kubeconfig: file, Context: "hidden"},
			`the server "api.live.example.com" looks like production (live)`},
		{"production that is named", cluster.JoinConfig{Kubeconfig: file, Context: "other", Confirmed: true}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := choose(tt.config)
			var refusal *cluster.Refusal
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want == "":
			case err == nil || !strings.Contains(err.Error(), tt.want):
				t.Errorf("got %v, want %q", err, tt.want)
			case !errors.As(err, &refusal):
				t.Errorf("%v is no refusal", err)
			}
		})
	}
}

// Words that contain such a word are not it.
func TestProductiveWord(t *testing.T) {
	for name, want := range map[string]string{
		"products": "", "delivery": "", "alive": "", "PROD": "prod", "eu_production": "production", "x.live": "live",
		"prd-3": "prd", "prod12": "prod", "staging": "",
	} {
		if got := productiveWord(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
