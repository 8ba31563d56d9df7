package doctor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckRows(t *testing.T) {
	good := computer{goVersion: "go1.26.8", needsGo: "1.25.0", cores: 4, memory: 8e9,
		caches: []space{{"Trommel's cache", "/c", 20e9}}, files: 4096, instances: 128, kubernetes: "v1.36.3"}
	for _, tt := range []struct {
		name   string
		change func(m *computer)
		bad    bool
		want   []string // parts of the table
	}{
		{"all is there", func(*computer) {}, false, []string{"go1.26.8", "20.00 GB free in /c", "not built yet",
			"about 4 min (control plane and controller: 12 CPU minutes)"}},
		{"warm", func(m *computer) { m.built = true }, false, []string{"about 1 min (the controller: 4 CPU minutes)"}},
		{"no go", func(m *computer) { m.goVersion = "" }, true,
			[]string{"missing: controllers are built from their source: install Go"}},
		{"an old go", func(m *computer) { m.goVersion, m.needsGo = "go1.24.1", "1.22" }, false,
			[]string{"runs are in real time; from go 1.26.0 on"}},
		{"go.mod wants more", func(m *computer) { m.needsGo = "1.27.0" }, false,
			[]string{"the controller's go.mod wants go 1.27.0"}},
		{"a development version", func(m *computer) { m.goVersion = "devel +abc" }, false, []string{"devel +abc"}},
		{"a full disk", func(m *computer) { m.caches[0].free = 3e9 }, true, []string{"missing: 6.00 GB are needed"}},
		{"a disk without any space", func(m *computer) { m.caches[0].free = 0 }, true,
			[]string{"missing: 6.00 GB are needed"}},
		{"an unknown disk", func(m *computer) { m.caches[0].free = -1 }, false, []string{"unknown, in /c"}},
		{"less is needed warm", func(m *computer) { m.caches[0].free, m.built = 3e9, true }, false, nil},
		{"little memory", func(m *computer) { m.memory = 1e9 }, false,
			[]string{"little: a cluster needs about 1.60 GB"}},
		{"limits", func(m *computer) { m.files, m.instances = 256, 16 }, false,
			[]string{"few: ulimit -n 1024", "few: sysctl fs.inotify.max_user_instances=128"}},
		{"a busy machine", func(m *computer) { m.load = 12 }, false, []string{"busy (load 12)", "about 14 min"}},
		{"git refuses", func(m *computer) { m.git = "fatal: detected dubious ownership in repository at '/r'\nTo add" },
			false, []string{"fatal: detected dubious ownership in repository at '/r'", "-buildvcs=false"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := good
			m.caches = append([]space(nil), good.caches...)
			tt.change(&m)
			rows := m.rows()
			var text strings.Builder
			if err := printRows(&text, rows); err != nil {
				t.Fatal(err)
			}
			bad := false
			for _, r := range rows {
				bad = bad || r.bad
			}
			if bad != tt.bad {
				t.Errorf("something is missing: %t\n%s", bad, text.String())
			}
			for _, want := range tt.want {
				if !strings.Contains(text.String(), want) {
					t.Errorf("no %q in\n%s", want, text.String())
				}
			}
		})
	}
}

// The check of this machine finds what the tests need.
func TestCheckMachine(t *testing.T) {
	m, err := look(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	if m.goVersion == "" || m.needsGo == "" || m.cores == 0 || m.files == 0 || len(m.caches) != 2 ||
		m.caches[0].free <= 0 {
		t.Errorf("%+v", m)
	}
	m.git, m.load = "", 0
	if diff := cmp.Diff("go", m.rows()[0].what); diff != "" {
		t.Error(diff)
	}
}
