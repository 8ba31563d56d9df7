package builds

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trommel-dev/trommel/plan"
)

// Programs for other machines are built without cgo, unless the suite says how they are built.
func TestEnvironmentOfBuilds(t *testing.T) {
	own := map[string]string{"GOFLAGS": "-mod=mod"}
	for _, tt := range []struct {
		name     string
		env      map[string]string
		here     string // CGO_ENABLED of this process; empty: none
		portable bool
		want     map[string]string
	}{
		{"for this machine", own, "", false, own},
		{"for others", own, "", true, map[string]string{"GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}},
		{"for others, without variables", nil, "", true, map[string]string{"CGO_ENABLED": "0"}},
		{"the suite says it", map[string]string{"CGO_ENABLED": "1"}, "", true, map[string]string{"CGO_ENABLED": "1"}},
		{"the environment says it", own, "1", true, own},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("CGO_ENABLED", tt.here)
			if tt.here == "" {
				if err := os.Unsetenv("CGO_ENABLED"); err != nil { // Setenv puts it back
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tt.want, environment(&plan.Build{Env: tt.env}, tt.portable)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if len(own) != 1 {
		t.Errorf("the suite's own variables are changed: %v", own)
	}
}

// A suite that names all of a repository is refused, before anything is built: each process would get a copy.
func TestFilesThatAreTooLarge(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	suite := &plan.Suite{File: filepath.Join(dir, "trommel.yaml"), Controllers: []plan.Controller{
		{Name: "db", Build: &plan.Build{}, Files: map[string]string{"/src": "."}},
	}}
	if err := checkBinaries(suite); err != nil {
		t.Error(err)
	}
	if err := os.Truncate(large, maxImageFile+1); err != nil { // it takes no space
		t.Fatal(err)
	}
	err := checkBinaries(suite)
	if err == nil || !strings.Contains(err.Error(), `controller "db": files: /src: `+dir+" has more than 100 MB") {
		t.Errorf("got %v", err)
	}
}
