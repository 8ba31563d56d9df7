package remote

import (
	"strings"
	"testing"
)

// A kubeconfig has all in it: programs would run, and files be read, where the controllers run.
func TestKubeConfig(t *testing.T) {
	for _, tt := range []struct{ name, user, cluster, want string }{
		{name: "a token", user: "{token: x}"},
		{name: "a certificate", user: "{client-certificate-data: eA==, client-key-data: eA==}"},
		{name: "a program", user: "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh}}",
			want: `user "u": exec would run "/bin/sh" where the controllers run: ` +
				"use a token or client-certificate-data"},
		{name: "an auth provider", user: "{auth-provider: {name: gcp}}",
			want: `user "u": auth-provider "gcp" is not supported: use a token or client-certificate-data`},
		{name: "a file with a token", user: "{tokenFile: /var/run/secrets/token}",
			want: `user "u": tokenFile is a file of another machine: use token`},
		{name: "a file with a certificate", user: "{client-certificate: /x, client-key-data: eA==}",
			want: `user "u": client-certificate is a file of another machine: use client-certificate-data`},
		{name: "a file with a key", user: "{client-certificate-data: eA==, client-key: /x}",
			want: `user "u": client-key is a file of another machine: use client-key-data`},
		{name: "a file with an authority", user: "{token: x}", cluster: ", certificate-authority: /x",
			want: `cluster "c": certificate-authority is a file of another machine: use certificate-authority-data`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "apiVersion: v1\nkind: Config\ncurrent-context: x\n" +
				"contexts: [{name: x, context: {cluster: c, user: u}}]\n" +
				"users: [{name: u, user: " + tt.user + "}]\n" +
				"clusters: [{name: c, cluster: {server: https://127.0.0.1:1" + tt.cluster + "}}]\n"
			to, err := restConfig([]byte(text))
			switch {
			case tt.want == "" && (err != nil || to.Host != "https://127.0.0.1:1"):
				t.Errorf("%+v, %v", to, err)
			case tt.want != "" && (err == nil || err.Error() != tt.want):
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	for _, text := range []string{"", "{}", "not a kubeconfig"} {
		if _, err := restConfig([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestUserMap(t *testing.T) {
	names, err := parseUserMap(`
- {originalName: alice, cluster: "west-*", name: chaos-alice}
- {originalName: alice, cluster: "*", name: somebody}
- {originalName: bob, cluster: east, name: chaos-bob}
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, cluster, want string }{
		{"alice", "west-1", "chaos-alice"}, {"alice", "east", "somebody"}, {"bob", "east", "chaos-bob"},
		{"bob", "west-1", "bob"}, {"carol", "east", "carol"},
	} {
		who := identity{tt.name, []string{"system:masters", "team"}}
		there, err := who.in(tt.cluster, names)
		if err != nil || there.name != tt.want {
			t.Errorf("%s in %s: %+v, %v", tt.name, tt.cluster, there, err)
		}
		groups := strings.Join(there.groups, ",")
		if want := "team,system:authenticated"; tt.want == tt.name && groups != want {
			t.Errorf("%s in %s has groups %s", tt.name, tt.cluster, groups)
		}
		if want := "system:authenticated"; tt.want != tt.name && groups != want {
			t.Errorf("%s in %s has groups %s", tt.name, tt.cluster, groups)
		}
	}
	if _, err := (identity{name: "system:admin"}).in("east", names); err == nil {
		t.Error("a system's name is asked for")
	}
	for text, want := range map[string]string{
		"[{originalName: 'system:x', cluster: a, name: b}]": "entry 1: originalName: \"system:x\" begins with " +
			"system:: such names are never mapped",
		"[{originalName: x, cluster: a, name: 'system:admin'}]": "such names are never mapped",
		"[{originalName: x, name: b}]":                          "entry 1: cluster is required",
		"[{originalName: x, cluster: '[', name: b}]":            "syntax error in pattern",
		"[{original: x}]":                                       "unknown field",
	} {
		if _, err := parseUserMap(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
