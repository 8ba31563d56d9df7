package baseline

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"testing"

	"github.com/trommel-dev/trommel/record"
)

// quoted is a text in JSON.
func quoted(t *testing.T, s string) string {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Regression: an operator whose authority was replaced kept the old one in its bundle, and that was a bug to us.
func TestBundlesOfCertificates(t *testing.T) {
	bundle := func(names ...string) string {
		text := ""
		for _, name := range names {
			text += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(name + " " + name)}))
		}
		return text
	}
	run := func(signer, trusted, told, chain string) *record.Run {
		encode := func(s string) string { return quoted(t, base64.StdEncoding.EncodeToString([]byte(s))) }
		return story(t,
			`db: created secret/default/signer {"data": {"tls.crt": `+encode(signer)+`}}`,
			`db: created configmap/default/trusted {"data": {"ca.crt": `+quoted(t, trusted)+`}}`,
			`db: created hook//check {"caBundle": `+encode(told)+`}`,
			`db: created secret/default/serving {"data": {"tls.crt": `+encode(chain)+`}}`)
	}
	all := func(n int) *record.Run {
		ca := bundle(fmt.Sprint("authority", n))
		return run(ca, ca, ca, bundle(fmt.Sprint("server", n))+ca)
	}
	ref := learn(t, all(1), all(22), all(333))
	checkDifferences(t, ref, all(4444))
	old, now, both := bundle("old"), bundle("new"), bundle("new", "old")
	checkDifferences(t, ref, run(now, both, both, bundle("server", "old")))
	checkDifferences(t, ref, run(now, both, both, bundle("server", "new")))
	for _, test := range []struct {
		run  *record.Run
		want string
	}{
		{run(now, both, old, bundle("server", "new")),
			"hook//check: caBundle is not the base64 encoding of data.ca.crt of configmap/default/trusted"},
		{run(now, now, now, bundle("server", "old")),
			"secret/default/serving: data.tls.crt is not a text that contains data.ca.crt of configmap/default/" +
				"trusted"},
		{run(now, old, now, bundle("server", "new")),
			"secret/default/signer: data.tls.crt is not equal to data.ca.crt of configmap/default/trusted"},
	} {
		if got := compare(t, ref, test.run); !slices.Contains(got, test.want+"; without faults: it is") {
			t.Errorf("%q\nwant %q", got, test.want)
		}
	}
}
