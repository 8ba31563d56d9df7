package reference

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"github.com/trommel-dev/trommel/record"
)

// A password and what is made from it belong together: after a crash between the two writes, they no longer do.
func TestRelations(t *testing.T) {
	encode := base64.StdEncoding.EncodeToString
	sum := func(s string) string { d := sha256.Sum256([]byte(s)); return hex.EncodeToString(d[:]) }
	secret := func(name, data string) string {
		return `db: created secret/default/` + name + ` {"data": ` + data + `}`
	}
	data := func(password string) string { return fmt.Sprintf(`{"password":%q}`, encode([]byte(password))) }
	type run struct{ password, copied, inURL, checksum, whole, unrelated string }
	tell := func(r run) *record.Run {
		return story(t,
			secret("db", data(r.password)),
			secret("app", data(r.copied)),
			`db: created config/default/app {"url": "postgres://u:`+r.inURL+`@db/app", "other": "`+r.unrelated+`"}`,
			fmt.Sprintf(`db: created deployment/default/app {"spec": {"template": {"metadata": {"annotations": {
				"checksum/password": %q, "checksum/secret": %q}}}}}`, sum(r.checksum)[:12], sum(data(r.whole))))
	}
	all := func(p, other string) run { return run{p, p, p, p, p, other} }
	ref := learn(t, tell(all("s3cr3tOne", "x9x9x9x9x")), tell(all("pAssw0rd2", "kk77kk77k")),
		tell(all("7hirdOneX", "0wwwwwww0")))
	checkDifferences(t, ref, tell(all("f0urthOne", "q2q2q2q2q2")))

	stale := all("f0urthOne", "q2q2q2q2q2")
	stale.copied = "f1fthOne9"
	got := compare(t, ref, tell(stale))
	for _, want := range []string{
		"secret/default/db: data.password is not equal to data.password of secret/default/app; without faults: it is",
		"deployment/default/app: spec.template.metadata.annotations.checksum/password is not the SHA-256 of " +
			"data.password of secret/default/app; without faults: it is",
		"config/default/app: url is not a text that contains data.password of secret/default/app; " +
			"without faults: it is",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%q is missing in %q", want, got)
		}
	}
	stale = all("f0urthOne", "q2q2q2q2q2")
	stale.whole = "f1fthOne9"
	got = compare(t, ref, tell(stale))
	const want = "deployment/default/app: spec.template.metadata.annotations.checksum/secret is not the SHA-256 of " +
		"data of secret/default/db; without faults: it is"
	if !slices.Contains(got, want) {
		t.Errorf("%q is missing in %q", want, got)
	}
	// A run without faults in which it does not hold shows that it need not.
	if err := ref.Allow(tell(stale)); err != nil {
		t.Fatal(err)
	}
	checkDifferences(t, ref, tell(stale))
	// What is masked completely does not count.
	ref = learn(t, tell(all("s3cr3tOne", "x9x9x9x9x")), tell(all("pAssw0rd2", "kk77kk77k")))
	stale = all("f0urthOne", "q2q2q2q2q2")
	stale.inURL = "f1fthOne9"
	if got := compare(t, ref, tell(stale)); len(got) == 0 {
		t.Error("no difference")
	}
	ref.Override([]MaskEntry{{Object: "config/default/app", Path: "url"}})
	checkDifferences(t, ref, tell(stale))
	// An object that is missing is told for itself.
	checkDifferences(t, ref, story(t, secret("db", data("s3cr3tTwo"))),
		"config/default/app: never created; without faults: exists at the end",
		"deployment/default/app: never created; without faults: exists at the end",
		"secret/default/app: never created; without faults: exists at the end")
}

// What two fields have in common by accident is no law.
func TestNoRelations(t *testing.T) {
	for _, values := range [][2]string{
		{"Running", "Succeeded"},
		{"MinimumReplicasAvailable", "ProgressDeadlineExceeded"},
		{"2026-01-02T03:04:05Z", "2027-02-03T04:05:06Z"},
		{"worker-of-the-group-1", "worker-of-the-group-2"},
		{"10.20.30.40", "10.20.31.55"},
		{"1234567890", "9876543210"},
		{"a short sentence 1", "2 more of the others"},
		{"a1b2", "c3d4"},
	} {
		run := func(v string) *record.Run {
			return story(t, `created pod/default/a {"x": "`+v+`"}`, `created pod/default/b {"y": "`+v+`"}`)
		}
		if ref := learn(t, run(values[0]), run(values[1])); len(ref.Relations) > 0 {
			t.Errorf("%q: %v", values, ref.Relations)
		}
	}
}
