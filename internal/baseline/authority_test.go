package baseline

import (
	"encoding/base64"
	"testing"

	"github.com/trommel-dev/trommel/record"
)

// Regression: a baseline of yesterday's cluster, and the certificate of its authority in a namespace that the operator
// had made: each plan of a later campaign had a difference.
func TestAuthorityOfTheCluster(t *testing.T) {
	pem := func(name string) string {
		return "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString([]byte(name)) +
			"\n-----END CERTIFICATE-----\n"
	}
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	run := func(cluster, bundle, server string) *record.Run {
		kubeconfig := "clusters:\n- cluster:\n    certificate-authority-data: " + encode(pem(cluster)) +
			"\n    server: https://" + server + "\n"
		return story(t,
			`created configmap/op/kube-root-ca.crt {"data": {"ca.crt": `+quoted(t, pem(cluster))+`}}`,
			`db: created configmap/op/copied {"data": {"ca": `+quoted(t, pem(bundle)+"and more")+`}}`,
			`db: created hook//h {"caBundle": `+quoted(t, encode(pem(bundle)))+`}`,
			`db: created secret/op/kubeconfig {"data": {"kubeconfig": `+quoted(t, encode(kubeconfig))+`}}`)
	}
	same := func(cluster string) *record.Run { return run(cluster, cluster, "api") }
	ref := learn(t, same("one"), same("one"), same("one"))
	checkDifferences(t, ref, same("another"))
	if got := compare(t, ref, run("another", "of somebody", "api")); len(got) != 2 {
		t.Errorf("another authority than the cluster's: %q", got)
	}
	if got := compare(t, ref, run("another", "another", "elsewhere")); len(got) != 1 {
		t.Errorf("another server: %q", got)
	}
}

// In an object of one cluster there may be the authority of another one.
func TestAuthoritiesOfClusters(t *testing.T) {
	n := newNames()
	for cluster, ca := range map[string]string{"east": "-- east's --", "west": "-- west's --"} {
		n.note(KeyIn(cluster, "configmap/default/kube-root-ca.crt"), map[string]any{
			"metadata": map[string]any{"name": "kube-root-ca.crt"}, "data": map[string]any{"ca.crt": ca + "\n"},
		})
	}
	got, _ := n.rewrite("east", "-- east's --\n-- west's --\n")
	if want := "(certificate of the cluster's authority)\n(certificate of west's authority)\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	encoded := base64.StdEncoding.EncodeToString([]byte("server: west, ca: -- west's --"))
	got, _ = n.rewrite("east", encoded)
	if want := "base64 of server: west, ca: (certificate of west's authority)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
