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
