package baseline

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
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
	// A missing object is reported by itself.
	checkDifferences(t, ref, story(t, secret("db", data("s3cr3tTwo"))),
		"config/default/app: never created; without faults: exists at the end",
		"deployment/default/app: never created; without faults: exists at the end",
		"secret/default/app: never created; without faults: exists at the end")
}

// Regression: of objects with generated names, nothing was learned: a pod could have the password of yesterday.
func TestRelationsOfGeneratedNames(t *testing.T) {
	generate := func(typ, beginning, letter, more string) string {
		return fmt.Sprintf(`db: created %s/default/%s%s {"metadata": {"generateName": %q, "uid": %q}, %s}`, typ,
			beginning, generated(letter), beginning, beginning+letter, more)
	}
	pod := func(letter, password, more string) string {
		return generate("pod", "web-", letter, `"spec": {"containers": [{"name": "web", "env": [
			{"name": "PASSWORD", "value": "`+password+`"}, {"name": "ID", "value": "`+letter+password+`"}]}]}`+more)
	}
	// The password, that of the pods, and those of a Secret with a generated name and of who names it.
	run := func(password string, pods []string, own, copied, named string) *record.Run {
		return story(t, append(pods,
			`db: created secret/default/db {`+secretData("password", password)+`}`,
			generate("secret", "own-", "z", secretData("token", own, "copy", copied)),
			`db: created set/default/a {"spec": {"token": "`+named+`"}}`)...)
	}
	all := func(a, b, password, own string) *record.Run {
		return run(password, []string{pod(a, password, ""), pod(b, password, "")}, own, own, own)
	}
	ref := learn(t, all("a", "b", "s3cr3tOne", "x9x9x9x9x"), all("c", "d", "pAssw0rd2", "kk77kk77k"))
	checkDifferences(t, ref, all("e", "f", "7hirdOneX", "0w7w7w7w0"))

	const stale = "spec.containers[name=web].env[name=PASSWORD].value is not equal to data.password of " +
		"secret/default/db; without faults: it is"
	one := []string{pod("e", "7hirdOneX", ""), pod("f", "0therOneX", "")}
	got := compare(t, ref, run("7hirdOneX", one, "0w7w7w7w0", "0w7w7w7w0", "0w7w7w7w0"))
	if !slices.Contains(got, "pod/default/web-#2: "+stale) || slices.Contains(got, "pod/default/web-#1: "+stale) {
		t.Errorf("got %q", got)
	}
	// A finished object that stays as it was is correct; so is one more of them.
	done := []string{pod("e", "7hirdOneX", ""), pod("f", "0therOneX", `, "status": {"phase": "Succeeded"}`)}
	for _, line := range compare(t, ref, run("7hirdOneX", done, "0w7w7w7w0", "0w7w7w7w0", "0w7w7w7w0")) {
		if strings.Contains(line, "PASSWORD") {
			t.Error(line)
		}
	}
	checkDifferences(t, ref, run("7hirdOneX",
		[]string{pod("e", "7hirdOneX", ""), pod("f", "7hirdOneX", ""), pod("g", "0therOneX", "")},
		"0w7w7w7w0", "0w7w7w7w0", "0w7w7w7w0"), "pod/default/web-#3: exists at the end; without faults: never created")

	fine := []string{pod("e", "7hirdOneX", ""), pod("f", "7hirdOneX", "")}
	checkDifferences(t, ref, run("7hirdOneX", fine, "0w7w7w7w0", "q2q2q2q2q", "0w7w7w7w0"),
		"secret/default/own-#1: data.copy is not equal to spec.token of set/default/a; without faults: it is",
		"secret/default/own-#1: data.token is not equal to data.copy of secret/default/own-#*; without faults: it is")
	wrong := run("7hirdOneX", fine, "0w7w7w7w0", "0w7w7w7w0", "q2q2q2q2q")
	checkDifferences(t, ref, wrong,
		"secret/default/own-#1: data.copy is not equal to spec.token of set/default/a; without faults: it is",
		"secret/default/own-#1: data.token is not equal to spec.token of set/default/a; without faults: it is")
	// A run without faults in which it does not hold shows that it need not.
	if err := ref.Allow(wrong); err != nil {
		t.Fatal(err)
	}
	checkDifferences(t, ref, wrong)
}

// An accidental equality of two fields is not a relation.
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
