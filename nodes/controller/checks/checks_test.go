package checks

import (
	"context"
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
		{"http://user@a/", "", "", `endpoint "http://user@a/": it must not have a user name`},
		{"http://a/x/../y", "", "", `endpoint "http://a/x/../y": its path must not have ".."`},
		{"http://a/x/%2e%2E/y", "", "", `endpoint "http://a/x/%2e%2E/y": its path must not have ".."`},
		{"file:///etc/passwd", "", "", `endpoint "file:///etc/passwd": it must be http://HOST or https://HOST`},
		{"http://a:b", "", "", `endpoint "http://a:b": invalid port ":b" after host`},
	} {
		got, err := Endpoint(test.template, test.address)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%s: %s, %v", test.template, got, err)
		}
	}
}

// By default only nodes and pods are asked, and never an address that means the controllers' own machine or its link.
func TestAllowed(t *testing.T) {
	const checks, pod = "https://checks.example/ok", "10.1.2.3"
	for _, test := range []struct {
		template, address string
		possible, allowed bool // when the request is made, and when the node is checked
	}{
		{"http://{{ .NodeIP }}:10256/healthz", "10.0.0.1", true, true},
		{"http://{{.NodeIP}}/x", "fd00::1", true, true},
		{"http://{{ .NodeIP }}/x", "169.254.169.254", true, false}, // a node that says so
		{"http://{{ .NodeIP }}/x", "127.0.0.1", true, false},
		{"http://{{ .NodeIP }}/x", "::ffff:127.0.0.1", true, false},
		{"http://{{ .NodeIP }}/x", "not-an-address", true, false},
		{"http://{{ .NodeIP }}.evil.example/x", "10.0.0.1", false, false},
		{"http://evil.example/{{ .NodeIP }}", "10.0.0.1", false, false},
		{"http://" + pod + ":8080/ready", "10.0.0.1", true, true},
		{"http://10.1.2.4:8080/ready", "10.0.0.1", true, false}, // no pod's
		{"http://169.254.169.254/latest/meta-data", "10.0.0.1", false, false},
		{"http://[fe80::1]/x", "10.0.0.1", false, false},
		{"http://127.0.0.1:10250/x", "10.0.0.1", false, false},
		{"http://0.0.0.0/x", "10.0.0.1", false, false},
		{"http://2130706433/x", "10.0.0.1", false, false}, // 127.0.0.1, for some
		{"http://localhost/x", "10.0.0.1", false, false},
		{"http://metadata.google.internal/x", "10.0.0.1", false, false},
		{checks, "10.0.0.1", true, true},
		{"https://CHECKS.example:443/ok/{{ .NodeIP }}?all", "10.0.0.1", true, true},
		{"https://checks.example/okay", "10.0.0.1", false, false},
		{"https://checks.example/", "10.0.0.1", false, false},
		{"https://checks.example:8443/ok", "10.0.0.1", false, false},
		{"http://checks.example/ok", "10.0.0.1", false, false},
		{"https://checks.example.evil/ok", "10.0.0.1", false, false},
		{"https://checks.example@evil/ok", "10.0.0.1", false, false},
		{"https://checks.example/ok/../admin", "10.0.0.1", false, false},
	} {
		c := Client{Allowed: []string{checks + "/"}, IsPod: func(_ context.Context, address string) (bool, error) {
			return address == pod, nil
		}}
		if err := c.possible(test.template); (err == nil) != test.possible {
			t.Errorf("%s is possible: %v", test.template, err)
		}
		if _, err := c.allowed(t.Context(), test.template, test.address); (err == nil) != test.allowed {
			t.Errorf("%s is allowed at %s: %v", test.template, test.address, err)
		}
	}
	for text, want := range map[string]string{
		"*": "", "https://a/b": "",
		"checks.example": `endpoint "checks.example": it must be http://HOST or https://HOST`,
		"http://a/?b":    `endpoint "http://a/?b": it must be a scheme, a host and perhaps a path`,
	} {
		if err := ParseAllowed([]string{text}); (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestValidate(t *testing.T) {
	err := Client{Getenv: func(string) string { return "" }}.Validate(&nodes.CycleNodeRequestSpec{
		HealthChecks: []nodes.HealthCheck{{Endpoint: "http://{{ .X }}", RegexMatch: "("}},
		PreTerminationChecks: []nodes.PreTerminationCheck{{
			Endpoint:  "http://{{ .NodeIP }}/x",
			TLSConfig: nodes.TLSConfig{RootCA: "CA"},
			HealthCheck: nodes.HealthCheck{
				Endpoint: "http://10.0.0.1", TLSConfig: nodes.TLSConfig{Certificate: "C", Key: "K"},
			},
		}},
	})
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
	c := Client{Timeout: 10 * time.Second, Allowed: []string{plain.URL, secure.URL}, Getenv: func(name string) string {
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
		{"too slow", Client{Timeout: 20 * time.Millisecond, Allowed: []string{Any}}.Health(t.Context(),
			&nodes.HealthCheck{Endpoint: plain.URL + "/hang"}, ""), "deadline exceeded"},
	} {
		if test.want == "" && test.err != nil ||
			test.want != "" && (test.err == nil || !strings.Contains(test.err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", test.name, test.err, test.want)
		}
	}
}
