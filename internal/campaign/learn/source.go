package learn

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/trommel-dev/trommel/instrumentation"
	"github.com/trommel-dev/trommel/internal/baseline"
	"github.com/trommel-dev/trommel/internal/buildinfo"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/plan"
)

// source is what a baseline of the workload is made from now.
func (lr *Learner) source(w workload) (baseline.Source, error) {
	s := baseline.Source{Format: baseline.Format, Controllers: map[string]string{}, Runs: lr.Learn}
	var err error
	if s.Trommel, err = buildinfo.Name(lr.Version); err != nil {
		return s, err
	}
	if s.Kubernetes, err = instrumentation.ResolveKubernetesVersion(lr.Suite.Cluster.KubernetesVersion); err != nil {
		return s, err
	}
	suite, binaries := lr.Suite, lr.Binaries
	if w.build != "" {
		b, err := lr.Builds.Get(lr.Life(), w.build)
		if err != nil {
			return s, err
		}
		suite, binaries = b.Suite, b.Binaries
	}
	if s.Suite, err = suiteHash(suite, w, s.Kubernetes); err != nil {
		return s, err
	}
	for i, b := range binaries {
		if s.Controllers[lr.Suite.Controllers[i].Name], err = lr.executables.hash(b.Path); err != nil {
			return s, err
		}
	}
	if lr.ControlPlane != "" {
		s.ControlPlane, err = lr.executables.hash(lr.ControlPlane)
	}
	return s, err
}

// hashes remembers the hashes of files.
type hashes struct {
	mu    sync.Mutex
	known map[string]string // by path
}

func (h *hashes) hash(path string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if sum, ok := h.known[path]; ok {
		return sum, nil
	}
	hash := sha256.New()
	if err := addFile(hash, path); err != nil {
		return "", err
	}
	if h.known == nil {
		h.known = map[string]string{}
	}
	h.known[path] = ShortHash(hash.Sum(nil))
	return h.known[path], nil
}

func addFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(w, f)
	return err
}

// ShortHash is the beginning of a hash, which is long enough to distinguish files.
func ShortHash(hash []byte) string { return hex.EncodeToString(hash[:10]) }

// suiteHash is a hash of everything in the suite that decides what the workload does: the suite with its variant, but
// without its other workloads, and the files that it names. Where the suite lies does not count. Files that a
// workload's commands read are not known.
func suiteHash(suite *plan.Suite, w workload, kubernetes string) (string, error) {
	own := *suite
	own.File = ""
	own.Variants = nil // the chosen one is merged in
	own.Generate = plan.Generate{}
	if !upgradeIn(w.steps) && !upgradeIn(suite.Workloads[w.name].Steps) {
		own.Builds = nil
	}
	if w.build != "" {
		forgetPlaces(&own)
	}
	exercise := suite.Workloads[w.name]
	if w.steps != nil {
		exercise = plan.Workload{Steps: w.steps}
	}
	own.Workloads = map[string]plan.Workload{w.name: exercise}
	hash := sha256.New()
	data, err := json.Marshal(own)
	if err != nil {
		return "", fmt.Errorf("hash of the suite: %w", err)
	}
	hash.Write(data)
	at := func(name string) string { return plan.Beside(suite.File, name) }
	for _, m := range suite.Manifests {
		if err := addManifest(hash, suite.File, m, kubernetes); err != nil {
			return "", fmt.Errorf("hash of manifest %s: %w", m, err)
		}
	}
	for _, c := range suite.Controllers {
		for _, image := range slices.Sorted(maps.Keys(c.Executables)) {
			if err := addTree(hash, at(c.Executables[image])); err != nil {
				return "", fmt.Errorf("hash of the executable for image %s: %w", image, err)
			}
		}
		for _, in := range slices.Sorted(maps.Keys(c.Files)) {
			if err := addTree(hash, at(c.Files[in])); err != nil {
				return "", fmt.Errorf("hash of %s in the image: %w", in, err)
			}
		}
	}
	for _, step := range exercise.Steps {
		if step.Apply == nil || step.Apply.File == "" {
			continue
		}
		if err := addTree(hash, at(step.Apply.File)); err != nil {
			return "", fmt.Errorf("hash of %s: %w", step.Apply.File, err)
		}
	}
	return ShortHash(hash.Sum(nil)), nil
}

// forgetPlaces forgets where a build's source lies; what it consists of counts.
func forgetPlaces(s *plan.Suite) {
	s.Manifests, s.Controllers = slices.Clone(s.Manifests), slices.Clone(s.Controllers)
	for i := range s.Manifests {
		s.Manifests[i].Path, s.Manifests[i].Helm, s.Manifests[i].ValuesFiles = "", "", nil
	}
	for i := range s.Controllers {
		if b := s.Controllers[i].Build; b != nil {
			own := *b
			own.Dir = ""
			s.Controllers[i].Build = &own
		}
		s.Controllers[i].Files = maps.Clone(s.Controllers[i].Files)
		for in := range s.Controllers[i].Files {
			s.Controllers[i].Files[in] = ""
		}
	}
}

// addManifest adds what a manifest consists of. A kustomization can take files from anywhere, so that its objects are
// added. A chart can make up values, such as passwords, so that its files are.
func addManifest(w io.Writer, suiteFile string, m plan.Manifest, kubernetes string) error {
	if m.Helm == "" {
		list, _, err := manifests.One(suiteFile, m, kubernetes)
		if err != nil {
			return err
		}
		data, err := objects.Encode(list)
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}
	files, err := manifests.ChartDirs(plan.Beside(suiteFile, m.Helm))
	if err != nil {
		return err
	}
	for _, name := range m.ValuesFiles {
		files = append(files, plan.Beside(suiteFile, name))
	}
	for _, file := range files {
		if err := addTree(w, file); err != nil {
			return err
		}
	}
	return nil
}

// addTree adds the names and contents of a file or of all files below a directory.
func addTree(w io.Writer, root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "\x00%s\x00", filepath.ToSlash(name))
		return addFile(w, path)
	})
}
