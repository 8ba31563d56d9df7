package exits

import (
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/processnode/volumes"
)

func TestExplainMachine(t *testing.T) {
	mounts := []volumes.Mount{{Path: "/etc/webhook/certs", Local: "/x"}}
	for _, tt := range []struct{ name, log, want string }{
		{
			"port",
			`problem running manager: failed to start metrics server: listen tcp :8080: bind: address already in use`,
			"port :8080 is already in use",
		},
		{
			"port of one address", `listen tcp4 0.0.0.0:9443: bind: address already in use`,
			"port 0.0.0.0:9443 is already in use",
		},
		{
			"account", `panic: open /var/run/secrets/kubernetes.io/serviceaccount/namespace: no such file or directory`,
			"make it take its configuration from KUBECONFIG",
		},
		{
			"volume", `{"error":"open /etc/webhook/certs/tls.crt: no such file or directory"}`,
			"/etc/webhook/certs/tls.crt exists in the pod below /etc/webhook/certs",
		},
		{
			"name", `dial tcp: lookup db.default.svc on 127.0.0.53:53: no such host`,
			"the name db.default.svc exists in the cluster",
		},
		{"another file", `open /etc/other/tls.crt: no such file or directory`, ""},
		{"another name", `lookup example.com on 127.0.0.53:53: no such host`, ""},
		{"nothing", `exit`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := explainMachine(tt.log, mounts)
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q in it", got, tt.want)
			}
		})
	}
}
