package baseline

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// named is a line of a story about an object that belongs to another one.
func named(event, key, uid, owner, more string) string {
	return fmt.Sprintf(`%s %s {"metadata": {"uid": %q, "ownerReferences": [{"uid": %q, "name": "x",
		"controller": true}]}%s}`, event, key, uid, owner, more)
}

// Regression: a workload in which a client makes names at random ended differently each time.
func TestRandomNames(t *testing.T) {
	const set = `created set/default/web {"metadata": {"uid": "s"}}`
	job := func(event, name string, more ...string) string {
		return "db: " + named(event, "job/default/"+name, name, "s", strings.Join(more, ""))
	}
	pod := func(job, end string) string {
		line := named("created", "pod/default/"+job+"-"+end, job+end, job, `, "spec": {"x": 1}`)
		return strings.Replace(line, `"metadata": {`, `"metadata": {"generateName": "`+job+`-", `, 1)
	}
	status := func(job string) string { return `created status/default/s {"job": "` + job + `", "x": 1}` }
	run := func(a, b string) *record.Run {
		return story(t, set, job("created", "web-"+a), job("created", "web-init"), pod("web-"+a, "bbbb2"),
			job("created", "web-"+b, `, "spec": {"x": 2}`), job("created", "backup-"+a+"-old"), status("web-"+a))
	}
	ref := learn(t, run("x1y2z", "7k3jd"), run("4r5ts", "9q8fh"))
	for _, c := range ref.Changes {
		if strings.Contains(string(c.Key), "x1y2z") || strings.Contains(string(c.Key), "#") && !c.Generated {
			t.Errorf("%s, generated: %t", c.Key, c.Generated)
		}
	}
	if len(ref.Found) > 0 {
		t.Errorf("found: %v", ref.Found)
	}
	// One that looks like a word by chance, and in another order.
	checkDifferences(t, ref, run("pears", "8d7f6"))
	checkDifferences(t, ref, story(t, set, job("created", "web-8d7f6", `, "spec": {"x": 2}`),
		job("created", "web-init"), job("created", "web-a1b2c"), job("created", "backup-m1n2b-old"),
		pod("web-a1b2c", "zzzz2"), status("web-8d7f6")))
	checkDifferences(t, ref, story(t, set, job("created", "web-8d7f6", `, "spec": {"x": 2}`),
		job("created", "web-init"), job("created", "backup-m1n2b-old"), status("web-8d7f6")),
		"job/default/web-#1: never created; without faults: exists at the end",
		"pod/default/web-#1-#1: never created; without faults: exists at the end")
	checkDifferences(t, ref, story(t, set, job("created", "web-8d7f6", `, "spec": {"x": 2}`),
		job("created", "web-init"), job("created", "web-a1b2c"), job("created", "backup-m1n2b-old"),
		pod("web-a1b2c", "zzzz2"), job("created", "web-h4g3f", `, "spec": {"x": 2}`), status("web-h4g3f")),
		"job/default/web-#3: exists at the end; without faults: never created")
	checkDifferences(t, ref, story(t, set, job("created", "web-8d7f6", `, "spec": {"x": 3}`),
		job("created", "web-init"), job("created", "web-a1b2c"), job("created", "backup-m1n2b-old"),
		pod("web-a1b2c", "zzzz2"), status("web-h4g3f")),
		"job/default/web-#2: spec.x is 3; without faults: 2",
		`status/default/s: job is "web-h4g3f"; without faults: "web-#"`)
	// Whose key it is in the run.
	f, err := facts.Follow(story(t, set, job("created", "web-8d7f6", `, "spec": {"x": 3}`), job("created", "web-init"),
		job("created", "web-a1b2c"), job("created", "backup-m1n2b-old"), pod("web-a1b2c", "zzzz2"),
		status("web-a1b2c")))
	if err != nil {
		t.Fatal(err)
	}
	differ := ref.Compare(f.Objects())
	if len(differ) != 1 || differ[0].Own != "job/default/web-8d7f6" || len(differ[0].Caused(f.Changes())) != 1 {
		t.Errorf("got %+v", differ)
	}
	comparer := ref.Comparer()
	for range 2 {
		if differ := comparer.Compare(f.Objects()); len(differ) != 1 {
			t.Errorf("got %+v", differ)
		}
	}
}

// How many there are may differ between runs without faults no more than of other objects.
func TestNamesThatAreNotRandom(t *testing.T) {
	const set = `created set/default/web {"metadata": {"uid": "s"}}`
	const other = `created set/default/b {"metadata": {"uid": "o"}}`
	of := func(owner string, names ...string) *record.Run {
		lines := []string{set, other}
		for _, name := range names {
			lines = append(lines, named("created", "job/default/"+name, name, owner, ""))
		}
		return story(t, lines...)
	}
	for _, tt := range []struct {
		name string
		a, b *record.Run
	}{
		{"words", of("s", "web-primary"), of("s", "web-replica")},
		{"places", of("s", "web-east1a"), of("s", "web-east1b")},
		{"numbers", of("s", "web-1"), of("s", "web-2")},
		{"versions", of("s", "web-v1"), of("s", "web-v2")},
		{"nothing but what is random", of("s", "x1y2z"), of("s", "a4b5c")},
		{"more of them", of("s", "web-x1y2z"), of("s", "web-4r5ts", "web-9q8fh")},
		{"none of them", of("s", "web-x1y2z"), of("s")},
		{"of another owner", of("s", "web-x1y2z"), of("o", "web-4r5ts")},
		{"of no owner", of("?", "web-x1y2z"), of("?", "web-4r5ts")},
		{"words and numbers", of("s", "web-cafe1", "web-place2"), of("s", "web-cafe1", "web-thing7")},
		{"as a hash, and also in the other run", of("s", "web-048b3", "web-11b22"), of("s", "web-048b3", "web-3282b",
			"web-11c22")},
		{"another beginning", of("s", "web-x1y2z"), of("s", "job-4r5ts")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var unstable *UnstableError
			if _, err := Learn("w", []*record.Run{tt.a, tt.b}); !errors.As(err, &unstable) {
				t.Errorf("got %v", err)
			}
		})
	}
	for _, tt := range []struct {
		name    string
		a, b, c *record.Run
	}{
		{"UIDs", of("s", "web-00000000-0000-4000-8000-000000000001"),
			of("s", "web-00000000-0000-4000-8000-000000000002"), of("s", "web-00000000-0000-4000-8000-000000000003")},
		{"short hashes", of("s", "web-048b3"), of("s", "web-3282b"), of("s", "web-00012")},
		{"times", of("s", "web-1764000000"), of("s", "web-1764000777"), of("s", "web-1864000777")},
		{"dates", of("s", "web-20261124-101500"), of("s", "web-20261124-101501"), of("s", "web-20270101-000000")},
		{"numbers", of("s", "web-8364528"), of("s", "web-93645281"), of("s", "web-123456")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ref := learn(t, tt.a, tt.b)
			checkDifferences(t, ref, tt.c)
			if got := compare(t, ref, of("s")); len(got) != 1 {
				t.Errorf("got %q", got)
			}
			if got := compare(t, ref, of("o", "web-x1y2z")); len(got) != 2 {
				t.Errorf("got %q", got)
			}
		})
	}
}

// How many objects an owner has at a time does not depend on how it is named.
func TestMostOfRandomOwners(t *testing.T) {
	run := func(job string) *record.Run {
		lines := []string{
			`created set/default/web {"metadata": {"uid": "s"}}`,
			named("created", "job/default/web-"+job, "j", "s", ""),
		}
		for _, pod := range []string{"a", "b", "c"} {
			lines = append(lines, named("created", "pod/default/"+pod, pod, "j", ""))
		}
		return story(t, lines...)
	}
	ref := learn(t, run("x1y2z"), run("4r5ts"))
	for owner, want := range map[facts.Key]int{
		"job/default/web-9q8fh": 3, "job/default/web-#7": 3, "set/default/web": 1,
	} {
		if got := ref.Most(owner, "pod"); got != want {
			t.Errorf("%s: %d, want %d", owner, got, want)
		}
	}
}

// Regression: a controller that makes names at random, and gives the objects no owner, had no stable workload.
func TestRandomNamesWithoutOwner(t *testing.T) {
	const set = `created set/default/web {"metadata": {"uid": "s"}}`
	volume := func(name, size string) string {
		return `db: created volume/default/` + name + ` {"spec": {"size": ` + size + `}}`
	}
	status := func(name string) string { return `db: created status/default/s {"volume": "` + name + `"}` }
	ref := learn(t,
		story(t, set, volume("data-x1y2z", "1"), volume("data-4r5ts", "2"), status("data-x1y2z")),
		story(t, set, volume("data-7h8jk", "2"), volume("data-q9w8e", "1"), status("data-q9w8e")))
	checkDifferences(t, ref, story(t, set, volume("data-b3n4m", "1"), volume("data-l5k6j", "2"), status("data-l5k6j")))
	checkDifferences(t, ref, story(t, set, volume("data-b3n4m", "1"), status("data-b3n4m")),
		"volume/default/data-#2: never created; without faults: exists at the end")
	checkDifferences(t, ref, story(t, set, volume("data-b3n4m", "1"), volume("data-l5k6j", "2"),
		volume("data-g7h8j", "2"), status("data-b3n4m")),
		"volume/default/data-#3: exists at the end; without faults: never created")
	checkDifferences(t, ref, story(t, set, volume("data-b3n4m", "1"), volume("data-l5k6j", "2"), status("data-w2e3r")),
		`status/default/s: volume is "data-w2e3r"; without faults: "data-#"`)
	// It is known while the run goes on, and who has made what is not.
	f := facts.NewFollower()
	if err := f.Add(story(t, set, volume("data-b3n4m", "1"), volume("data-l5k6j", "2"),
		status("data-l5k6j")).History...); err != nil {
		t.Fatal(err)
	}
	if differ := ref.Comparer().Compare(f.Objects()); len(differ) > 0 {
		t.Errorf("got %v", differ)
	}

	for _, tt := range []struct {
		name string
		a, b []string
	}{
		{"made by somebody else", []string{strings.TrimPrefix(volume("data-x1y2z", "1"), "db: ")},
			[]string{strings.TrimPrefix(volume("data-7h8jk", "1"), "db: ")}},
		{"more of them", []string{volume("data-x1y2z", "1")},
			[]string{volume("data-7h8jk", "1"), volume("data-q9w8e", "1")}},
		{"words", []string{volume("data-east", "1")}, []string{volume("data-west", "1")}},
		{"of an owner that is unknown", []string{"db: " + named("created", "volume/default/data-x1y2z", "a", "?", "")},
			[]string{"db: " + named("created", "volume/default/data-7h8jk", "b", "?", "")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var unstable *UnstableError
			_, err := Learn("w", []*record.Run{story(t, tt.a...), story(t, tt.b...)})
			if !errors.As(err, &unstable) {
				t.Errorf("got %v", err)
			}
		})
	}
}
