package baseline

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

func secretData(values ...string) string {
	text := ""
	for i := 0; i < len(values); i += 2 {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%q: %q", values[i], base64.StdEncoding.EncodeToString([]byte(values[i+1])))
	}
	return `"data": {` + text + `}`
}

// Regression: a password is masked, so that it passed unseen that it was replaced once too often, or never.
func TestRenewals(t *testing.T) {
	const owner = `"ownerReferences": [{"uid": "c", "controller": true}]`
	cluster := func(event string, generation int) string {
		return fmt.Sprintf(`%s cluster/default/db {"metadata": {"uid": "c", "generation": %d}, "spec": {"rotate": 1}}`,
			event, generation)
	}
	secret := func(event, password string) string {
		return "db: " + event + ` secret/default/db {"metadata": {` + owner + `}, ` +
			secretData("password", password, "user", "u") + `}`
	}
	one, two := cluster("created", 1), cluster("updated", 2)
	usual := func(a, b string) *record.Run {
		return story(t, one, secret("created", a), two, secret("updated", b))
	}
	ref := learn(t, usual("s3cr3tOne", "pAssw0rd2"), usual("7hirdOneX", "f0urthOne"))
	const replaced = "secret/default/db: data.password was replaced "
	for _, tt := range []struct {
		name string
		run  []string
		want []string
	}{
		{"as usual", []string{one, secret("created", "f1fthOneX"), two, secret("updated", "s1xthOneX")}, nil},
		{"once too often", []string{
			one, secret("created", "f1fthOneX"), two, secret("updated", "s1xthOneX"), secret("updated", "7e7e7e7eX"),
		}, []string{replaced + "2 times; without faults: once"}},
		{"never", []string{one, secret("created", "f1fthOneX"), two},
			[]string{replaced + "never; without faults: once"}},
		// It has no other value than what it was asked for.
		{"never, because it was created later", []string{one, two, secret("created", "f1fthOneX")}, nil},
		// The owner is not there yet.
		{"not yet", []string{one, secret("created", "f1fthOneX")}, nil},
		{"in an object that was made again", []string{
			one, secret("created", "f1fthOneX"), two, secret("updated", "s1xthOneX"), secret("deleted", "s1xthOneX"),
			secret("created", "7e7e7e7eX"),
		}, []string{"secret/default/db: created 2 times; without faults: created once"}},
		{"with the same value", []string{
			one, secret("created", "f1fthOneX"), two, secret("updated", "s1xthOneX"), secret("updated", "s1xthOneX"),
		}, nil},
		{"not there for a time", []string{
			one, secret("created", "f1fthOneX"), two, secret("updated", "s1xthOneX"), secret("updated", ""),
			secret("updated", "s1xthOneX"),
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) { checkDifferences(t, ref, story(t, tt.run...), tt.want...) })
	}
	// A run without faults shows that it may be so.
	more := func(a, b, c string) *record.Run {
		return story(t, one, secret("created", a), two, secret("updated", b), secret("updated", c))
	}
	if err := ref.Allow(more("s3cr3tOne", "pAssw0rd2", "8ghthOneX")); err != nil {
		t.Fatal(err)
	}
	checkDifferences(t, ref, more("f1fthOneX", "s1xthOneX", "7e7e7e7eX"))
	checkDifferences(t, learn(t, usual("s3cr3tOne", "pAssw0rd2"), more("7hirdOneX", "f0urthOne", "8ghthOneX")),
		more("f1fthOneX", "s1xthOneX", "7e7e7e7eX"))
}

// What is replaced from time to time is replaced more often in a run that takes longer, as runs with faults do.
func TestPeriodicRenewals(t *testing.T) {
	run := func(observed int, at ...int) *record.Run {
		var lines []string
		for i := range at {
			password := strconv.FormatUint(uint64(i*1000+observed)*0x9E3779B97F4A7C15, 36)
			lines = append(lines, `db: updated secret/default/db {`+secretData("password", password)+`}`)
		}
		lines[0] = strings.Replace(lines[0], "updated", "created", 1)
		r := story(t, lines...)
		for i := range r.History {
			r.History[i].Time = time.Unix(int64(at[i]), 0)
			r.Events[2*i].Time, r.Events[2*i+1].Time = r.History[i].Time, r.History[i].Time
		}
		r.Meta.Observed = time.Unix(int64(observed), 0)
		return r
	}
	ref := learn(t, run(170, 0, 60, 120), run(171, 0, 60, 120))
	checkDifferences(t, ref, run(900, 0, 60, 120, 180, 240, 300))
	checkDifferences(t, ref, run(59, 0))
	checkDifferences(t, ref, run(180, 0, 60, 63, 123),
		"secret/default/db: data.password was replaced 3 times; without faults: 2 times")

	// A run without faults that came to rest need not be observed for long: nothing was to come.
	a, b := run(2, 0), run(3, 0)
	checkDifferences(t, learn(t, a, b), run(30, 0, 5))
	a.Meta.Rested = true
	checkDifferences(t, learn(t, a, b), run(30, 0, 5))
	b.Meta.Rested = true
	checkDifferences(t, learn(t, a, b), run(30, 0, 5),
		"secret/default/db: data.password was replaced once; without faults: never")
	checkDifferences(t, learn(t, a, b), run(30, 0, 25))
}

// Regression: only of a Secret was it known that a random value was replaced.
func TestRenewalsOutsideOfSecrets(t *testing.T) {
	const notes = true
	for _, tt := range []struct {
		name   string
		object string
		field  string
		note   bool
		values []string // nil: tokens
	}{
		{"a ConfigMap", `configmap/default/db {"data": {"cookie": %q}}`, "data.cookie", !notes, nil},
		{"the environment of a template", `deployment.apps/default/a {"spec": {"template": {"spec": {"initContainers":
			[{"name": "config", "env": [{"name": "COOKIE", "value": %q}]}]}}}}`,
			"spec.template.spec.initContainers[name=config].env[name=COOKIE].value", !notes, nil},
		{"a spec", `db.example.com/default/a {"spec": {"cluster": %q}}`, "spec.cluster", notes, nil},
		{"an annotation", `db.example.com/default/a {"metadata": {"annotations": {"cluster": %q}}}`,
			"metadata.annotations.cluster", notes, nil},
		{"what looks like a hash", `configmap/default/db {"data": {"x": %q}}`, "data.x", notes, []string{
			strings.Repeat("a8b7", 8), strings.Repeat("b9c8", 8), strings.Repeat("1c2d", 8),
			strings.Repeat("9f8e", 8),
		}},
		{"a name", `configmap/default/db {"data": {"leader": %q}}`, "data.leader", notes, []string{
			"web-7d9f8c-x7k2p", "web-8c6b5d-q9w8r", "web-9f7d6b-l5k6j", "web-6b8c4f-n4m2p",
		}},
		{"a generated name", `configmap/default/db-bcdfg {"metadata": {"generateName": "db-", "uid": "x"},
			"data": {"cookie": %q}}`, "data.cookie", !notes, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			values := tt.values
			if values == nil {
				values = []string{"s3cr3tOne", "pAssw0rd2", "7hirdOneX", "f0urthOne"}
			}
			line := func(event, value string) string { return "db: " + event + " " + fmt.Sprintf(tt.object, value) }
			a, b := story(t, line("created", values[0])), story(t, line("created", values[1]))
			a.Meta.Rested, b.Meta.Rested = true, true
			ref := learn(t, a, b)
			checkDifferences(t, ref, story(t, line("created", values[2])))
			f, err := facts.Follow(story(t, line("created", values[2]), line("updated", values[3])))
			if err != nil {
				t.Fatal(err)
			}
			all := ref.Compare(f.Objects())
			want := tt.field + " was replaced once; without faults: never"
			if len(all) != 1 || !strings.HasSuffix(all[0].String(), want) || all[0].Note != tt.note {
				t.Errorf("got %v", all)
			}
		})
	}
}

// Regression: a note about one field made a bug of another one that runs without faults explain.
func TestRenewalsThatAreNotesExplainNothing(t *testing.T) {
	line := func(event, id string, size int) string {
		return fmt.Sprintf(`db: %s db.example.com/default/a {"spec": {"id": %q, "size": %d}}`, event, id, size)
	}
	a, b := story(t, line("created", "s3cr3tOne", 1)), story(t, line("created", "pAssw0rd2", 1))
	a.Meta.Rested, b.Meta.Rested = true, true
	ref := learn(t, a, b)
	if err := ref.Allow(story(t, line("created", "7hirdOneX", 2))); err != nil {
		t.Fatal(err)
	}
	again := story(t, line("created", "7hirdOneX", 2), line("updated", "f0urthOne", 2))
	if got := compare(t, ref, again); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

// A field that differs in each run need not be secret: times, versions, descriptions in a status, and certificates,
// which some controllers issue at each of their starts.
func TestNoRenewals(t *testing.T) {
	pem := func(s string) string {
		return "-----BEGIN CERTIFICATE-----\nMIIC" + s + "\n-----END CERTIFICATE-----\n"
	}
	for _, tt := range []struct {
		name   string
		object string
		values []string
	}{
		{"a time", `secret/default/db {"data": {"at": %q}}`,
			[]string{"2026-01-02T03:04:05Z", "2027-03-02T03:04:06Z", "2028-04-02T03:04:07Z", "2029-05-02T03:04:08Z"}},
		{"a hash in a status", `set/default/a {"status": {"hash": %q}}`,
			[]string{"a8b7c6d5e4", "b9c8d7e6f5", "1c2d3e4f5a", "9f8e7d6c5b"}},
		{"a hash in an annotation", `set/default/a {"metadata": {"annotations": {"hash": %q}}}`,
			[]string{"a8b7c6d5e4", "b9c8d7e6f5", "1c2d3e4f5a", "9f8e7d6c5b"}},
		{"a certificate", `secret/default/db {"data": {"tls.crt": %q}}`,
			[]string{pem("a8b7c6d5e4"), pem("b9c8d7e6f5"), pem("1c2d3e4f5a"), pem("9f8e7d6c5b")}},
		{"a URL", `secret/default/db {"data": {"url": %q}}`,
			[]string{"http://a8b7c6d5e4", "http://b9c8d7e6f5", "http://1c2d3e4f5a", "http://9f8e7d6c5b"}},
		{"a checksum", `secret/default/db {"data": {"data-checksum": %q}}`,
			[]string{"a8b7c6d5e4", "b9c8d7e6f5", "1c2d3e4f5a", "9f8e7d6c5b"}},
		{"what was rendered", `secret/default/db {"data": {"x": %q}}`,
			[]string{strings.Repeat("a8b7c6d5e4", 30), strings.Repeat("b9c8d7e6f5", 30),
				strings.Repeat("1c2d3e4f5a", 30), strings.Repeat("9f8e7d6c5b", 30)}},
		{"a web token", `secret/default/db {"data": {"token": %q}}`,
			[]string{"eyJa8b7c6d5e4", "eyJb9c8d7e6f5", "eyJ1c2d3e4f5a", "eyJ9f8e7d6c5b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			line := func(event, value string) string { return "db: " + event + " " + fmt.Sprintf(tt.object, value) }
			ref := learn(t, story(t, line("created", tt.values[0])), story(t, line("created", tt.values[1])))
			checkDifferences(t, ref, story(t, line("created", tt.values[2]), line("updated", tt.values[3])))
		})
	}
}

// Regression: that two keys of one Secret must match was not learned.
func TestRelationsInOneObject(t *testing.T) {
	run := func(a, b, inURL string) *record.Run {
		return story(t, `db: created secret/default/db {`+
			secretData("password", a, "PGPASSWORD", b, "url", "postgres://u:"+inURL+"@db")+`}`,
			`created set/default/a {"spec": {"x": "`+a+`"}, "status": {"x": "`+a+`"}}`)
	}
	same := func(s string) *record.Run { return run(s, s, s) }
	ref := learn(t, same("s3cr3tOne"), same("pAssw0rd2"))
	checkDifferences(t, ref, same("7hirdOneX"))
	got := compare(t, ref, run("7hirdOneX", "f0urthOne", "7hirdOneX"))
	const want = "secret/default/db: data.password is not equal to data.PGPASSWORD of secret/default/db; " +
		"without faults: it is"
	if !slices.Contains(got, want) {
		t.Errorf("%q is missing in %q", want, got)
	}
	for _, r := range ref.Relations {
		if r.Field.Object == r.Of.Object && r.Field.Object != "secret/default/db" {
			t.Errorf("%+v", r)
		}
	}
}

// Regression: an annotation that names a Secret's version was masked.
func TestVersionRelation(t *testing.T) {
	secret := func(event, password string) string {
		return "db: " + event + ` secret/default/db {` + secretData("password", password) + `}`
	}
	set := func(event string, version int) string {
		return fmt.Sprintf(`db: %s set/default/a {"metadata": {"annotations": {"secret-version": "%d"}}}`, event,
			version)
	}
	const other = `created config/default/x {}`
	ref := learn(t, story(t, secret("created", "s3cr3tOne"), set("created", 1), other),
		story(t, other, secret("created", "pAssw0rd2"), set("created", 2)))
	checkDifferences(t, ref, story(t, other, secret("created", "7hirdOneX"), set("created", 2)))
	checkDifferences(t, ref,
		story(t, other, secret("created", "7hirdOneX"), set("created", 2), secret("updated", "f0urthOne"),
			set("updated", 4)),
		"secret/default/db: data.password was replaced once; without faults: never")
	checkDifferences(t, ref,
		story(t, other, secret("created", "7hirdOneX"), set("created", 2), `db: deleted secret/default/db {}`,
			secret("created", "f0urthOne")),
		"secret/default/db: created 2 times; without faults: created once",
		"set/default/a: metadata.annotations.secret-version is not the resource version of data of secret/default/db; "+
			"without faults: it is")
	// Only the metadata has changed since: a label, or an annotation.
	checkDifferences(t, ref, story(t, other, secret("created", "7hirdOneX"), set("created", 2),
		secret("updated", "7hirdOneX")))
}

// Regression: a random value that must be made again whenever a password is, such as its salted hash, was masked.
func TestReplacedTogether(t *testing.T) {
	secret := func(event, password string) string {
		return "db: " + event + ` secret/default/db {` + secretData("password", password) + `}`
	}
	hash := func(event, value string) string {
		return "db: " + event + ` set/default/a {"spec": {"salted": "$2a$10$` + value + `"}}`
	}
	usual := func(s ...string) *record.Run {
		return story(t, secret("created", s[0]), hash("created", s[1]), secret("updated", s[2]), hash("updated", s[3]))
	}
	ref := learn(t, usual("s3cr3tOne", "h4x0rOne1", "pAssw0rd2", "h4x0rTwo2"),
		usual("7hirdOneX", "gg55gg55g", "f0urthOne", "kk77kk77k"))
	if len(ref.Relations) != 1 {
		t.Errorf("relations: %v", ref.Relations)
	}
	checkDifferences(t, ref, usual("f1fthOneX", "zz99zz99z", "s1xthOneX", "mm22mm22m"))
	const often = "secret/default/db: data.password was replaced 2 times; without faults: once"
	const stale = "set/default/a: spec.salted is not replaced after data.password of secret/default/db; " +
		"without faults: it is"
	first, firstHash := secret("created", "f1fthOneX"), hash("created", "zz99zz99z")
	checkDifferences(t, ref, story(t, first, firstHash, secret("updated", "s1xthOneX")), stale)
	// Killed between the two, and once more: the hash is that of the last password.
	checkDifferences(t, ref, story(t, first, firstHash, secret("updated", "s1xthOneX"), secret("updated", "7e7e7e7eX"),
		hash("updated", "mm22mm22m")), often)
	// They do not depend on each other, and came the other way round.
	checkDifferences(t, ref, story(t, first, firstHash, hash("updated", "mm22mm22m"), secret("updated", "s1xthOneX")))
	// The hash is in an object that was made after the last password.
	checkDifferences(t, ref, story(t, first, secret("updated", "s1xthOneX"), hash("created", "mm22mm22m")))
	checkDifferences(t, ref, story(t, first, secret("updated", "s1xthOneX"), secret("updated", "7e7e7e7eX"),
		hash("created", "mm22mm22m")), often)
	// What is replaced by turns in some runs only need not be.
	if ref := learn(t, usual("s3cr3tOne", "h4x0rOne1", "pAssw0rd2", "h4x0rTwo2"),
		story(t, first, firstHash, secret("updated", "s1xthOneX"))); len(ref.Relations) > 0 {
		t.Errorf("relations: %v", ref.Relations)
	}
}

// Regression: a comparison that goes on kept the texts that it had seen first.
func TestComparerSeesNewTexts(t *testing.T) {
	secrets := func(s string) []string {
		return []string{
			`db: created secret/default/db {` + secretData("password", s) + `}`,
			`db: created secret/default/app {` + secretData("password", s) + `}`,
		}
	}
	ref := learn(t, story(t, secrets("s3cr3tOne")...), story(t, secrets("pAssw0rd2")...))
	lines := append(secrets("7hirdOneX"), `db: updated secret/default/app {`+secretData("password", "f0urthOne")+`}`)
	history := story(t, lines...).History
	f, comparer := facts.NewFollower(), ref.Comparer()
	for i, want := range []int{1, 0, 2} {
		if err := f.Add(history[i]); err != nil {
			t.Fatal(err)
		}
		if differ := comparer.Compare(f.Objects()); len(differ) != want {
			t.Errorf("after %d changes: %v", i+1, differ)
		}
	}
}
