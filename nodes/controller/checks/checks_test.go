package checks

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
)

func TestEndpoint(t *testing.T) {
	for _, test := range []struct{ template, address, want, err string }{
		{"http://{{ .NodeIP }}:8080/x", "10.0.0.1", "http://10.0.0.1:8080/x", ""},
		{"http://{{.NodeIP}}/x", "fd00::1", "http://[fd00::1]/x", ""},
		{"http://service.ns.svc/x", "", "http://service.ns.svc/x", ""},
		{"http://{{ .NodeIP }}/x", "", "", `endpoint "http://{{ .NodeIP }}/x": the node has no internal address`},
		{"http://{{ .Name }}/x", "10.0.0.1", "",
			`endpoint "http://{{ .Name }}/x": {{ .NodeIP }} is the only template`},
		{`http://{{ printf "%s" .NodeIP }}/`, "10.0.0.1", "",
			`endpoint "http://{{ printf \"%s\" .NodeIP }}/": {{ .NodeIP }} is the only template`},
		{"file:///etc/passwd", "", "", `endpoint "file:///etc/passwd": it must be http://HOST or https://HOST`},
		{"http://a:b", "", "", `endpoint "http://a:b": invalid port ":b" after host`},
	} {
		got, err := Endpoint(test.template, test.address)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%s: %s, %v", test.template, got, err)
		}
	}
}

func TestValidate(t *testing.T) {
	err := Validate(&nodes.CycleNodeRequestSpec{
		HealthChecks: []nodes.HealthCheck{{Endpoint: "http://{{ .X }}", RegexMatch: "("}},
		PreTerminationChecks: []nodes.PreTerminationCheck{{
			Endpoint:  "http://x",
			TLSConfig: nodes.TLSConfig{RootCA: "CA"},
			HealthCheck: nodes.HealthCheck{
				Endpoint: "http://x", TLSConfig: nodes.TLSConfig{Certificate: "C", Key: "K"},
			},
		}},
	}, func(string) string { return "" })
	const want = `healthChecks[0]: endpoint "http://{{ .X }}": {{ .NodeIP }} is the only template
healthChecks[0]: error parsing regexp: missing closing ): ` + "`(`" + `
preTerminationChecks[0]: environment variable CA has no certificate
preTerminationChecks[0].healthCheck: environment variables C and K: ` +
		"tls: failed to find any PEM data in certificate input"
	if err == nil || err.Error() != want {
		t.Error(err)
	}
}

func TestChecks(t *testing.T) {
	hang := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ok", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "status: ready")
	})
	mux.HandleFunc("POST /drain", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	mux.HandleFunc("GET /moved", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/ok", http.StatusFound)
	})
	mux.HandleFunc("GET /long", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", maxBody)+"ready")
	})
	mux.HandleFunc("GET /hang", func(http.ResponseWriter, *http.Request) { <-hang })
	plain, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	t.Cleanup(func() { close(hang) })
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	c := Client{Timeout: 10 * time.Second, Getenv: func(name string) string {
		return map[string]string{"CA": ca}[name]
	}}
	health := func(check nodes.HealthCheck) error { return c.Health(t.Context(), &check, "") }
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{"default status", health(nodes.HealthCheck{Endpoint: plain.URL + "/ok"}), ""},
		{"body", health(nodes.HealthCheck{Endpoint: plain.URL + "/ok", RegexMatch: "^status: (ready|up)$"}), ""},
		{"other body", health(nodes.HealthCheck{Endpoint: plain.URL + "/ok", RegexMatch: "up"}),
			`the body does not match "up"`},
		{"other status", health(nodes.HealthCheck{Endpoint: plain.URL + "/none", ValidStatusCodes: []int32{200, 204}}),
			"status 404, expected 200 204"},
		{"redirection", health(nodes.HealthCheck{Endpoint: plain.URL + "/moved"}), "status 302, expected 200"},
		{"behind the limit", health(nodes.HealthCheck{Endpoint: plain.URL + "/long", RegexMatch: "ready"}),
			"does not match"},
		{"unknown authority", health(nodes.HealthCheck{Endpoint: secure.URL + "/ok"}),
			"certificate signed by unknown authority"},
		{"known authority", health(nodes.HealthCheck{
			Endpoint: secure.URL + "/ok", TLSConfig: nodes.TLSConfig{RootCA: "CA"}}), ""},
		{"trigger", c.Trigger(t.Context(), &nodes.PreTerminationCheck{
			Endpoint: plain.URL + "/drain", ValidStatusCodes: []int32{202}}, ""), ""},
		{"too slow", Client{Timeout: 20 * time.Millisecond}.Health(t.Context(),
			&nodes.HealthCheck{Endpoint: plain.URL + "/hang"}, ""), "deadline exceeded"},
	} {
		if test.want == "" && test.err != nil ||
			test.want != "" && (test.err == nil || !strings.Contains(test.err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, test.err, test.want)
		}
	}
}
