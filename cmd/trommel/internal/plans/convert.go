package plans

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/buildinfo"
	"github.com/trommel-dev/trommel/internal/objects/manifests"
	"github.com/trommel-dev/trommel/internal/originals"
	"github.com/trommel-dev/trommel/plan"
)

// NewConvertCommand returns `trommel convert`.
func NewConvertCommand(s output.Streams) *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "convert FILE|DIR",
		Short: "Write plans, and objects of other projects, in Trommel's form",
		Long: `Convert reads plans, in Trommel's format or one of Sieve's two formats, and writes them in Trommel's
canonical form. A plan without a name is named after its file.

It also converts objects of other projects: CycleNodeRequests and NodeGroups of Cyclops, and Disruptions,
DisruptionCrons and DisruptionRollouts of chaos-controller. Other objects in the same files stay as they are. What
Trommel cannot express is a mistake that says what to write instead. What is left out is reported on standard error.

A single file is written to standard output or to the file that -o names. The files of a directory are written to the
directory that -o names, under the same paths. If any of them cannot be converted, no file is written.

Exit codes: 0 converted, 2 mistakes in a file or something that Trommel's format cannot express.`,
		Example: `  trommel convert sieve/xtradb_stale_1.yaml
  trommel convert sieve/ -o plans/
  trommel convert cyclops/cnr.yaml | kubectl apply -f -`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return convert(s, args[0], output) },
	}
	c.Flags().StringVarP(&output, "output", "o", "", "`file or directory` to write to")
	return c
}

func convert(s output.Streams, from, output string) error {
	info, err := os.Stat(from)
	if err != nil || !info.IsDir() {
		text, notes, err := convertFile(from, output)
		if err != nil {
			return exit.With(exit.Usage, err)
		}
		tell(s, notes)
		switch {
		case output == "":
			_, err = s.Out.Write(text)
		default:
			if err = os.MkdirAll(filepath.Dir(output), 0o755); err == nil {
				err = os.WriteFile(output, text, 0o644)
			}
		}
		if err != nil {
			return exit.With(exit.CannotRun, err)
		}
		return nil
	}
	if output == "" {
		return exit.With(exit.Usage, fmt.Errorf("%s is a directory; name the output directory with -o", from))
	}
	converted := map[string][]byte{}
	var order, notes []string
	var errs []error
	err = filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || !manifests.IsYAML(path) {
			return nil
		}
		if convertible, err := isConvertible(path); err != nil || !convertible {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		text, left, err := convertFile(path, filepath.Join(output, rel))
		if err != nil {
			errs = append(errs, err)
			return nil
		}
		order, notes = append(order, rel), append(notes, left...)
		converted[rel] = text
		return nil
	})
	if err != nil {
		return exit.With(exit.CannotRun, err)
	}
	if len(errs) > 0 {
		return exit.With(exit.Usage, errors.Join(errs...))
	}
	if len(order) == 0 {
		return exit.With(exit.Usage, fmt.Errorf("%s: no plan and no object to convert in this directory", from))
	}
	tell(s, notes)
	for _, rel := range order {
		to := filepath.Join(output, rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return exit.With(exit.CannotRun, err)
		}
		if err := os.WriteFile(to, converted[rel], 0o644); err != nil {
			return exit.With(exit.CannotRun, err)
		}
		fmt.Fprintln(s.Out, to)
	}
	return nil
}

// tell writes what was left out.
func tell(s output.Streams, notes []string) {
	for _, note := range notes {
		fmt.Fprintln(s.Err, note)
	}
}

// isConvertible reports whether a file has a plan, or an object of another project that is converted.
func isConvertible(file string) (bool, error) {
	data, err := os.ReadFile(file)
	return plan.Kind(data) == "TestPlan" || originals.Detect(data), err
}

// convertFile converts a file that will be written to the file to; empty: it is not written to a file. It also returns
// what was left out.
func convertFile(file, to string) (text []byte, notes []string, err error) {
	// A file that cannot be read is reported like a plan.
	if data, err := os.ReadFile(file); err == nil && originals.Detect(data) {
		return originals.Convert(file, data)
	}
	text, err = convertPlan(file, to)
	return text, nil, err
}

func convertPlan(file, to string) ([]byte, error) {
	p, err := plan.Load(file)
	if err != nil {
		return nil, err
	}
	if to != "" {
		if p.Suite, err = seenFrom(to, file, p.Suite); err != nil {
			return nil, err
		}
		for i := range p.Actions {
			a := &p.Actions[i]
			if a.ManifestFile, err = seenFrom(to, file, a.ManifestFile); err != nil {
				return nil, err
			}
		}
	}
	text, err := plan.Marshal(p)
	return append([]byte(plan.EditorLine("TestPlan", buildinfo.Version())), text...), err
}

// seenFrom converts a path that is relative to the file from to one that is relative to the file to.
func seenFrom(to, from, path string) (string, error) {
	if path == "" || filepath.IsAbs(path) || filepath.Clean(filepath.Dir(to)) == filepath.Clean(filepath.Dir(from)) {
		return path, nil
	}
	target, err := filepath.Abs(plan.Beside(from, path))
	if err != nil {
		return "", err
	}
	dir, err := filepath.Abs(filepath.Dir(to))
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(dir, target)
	return filepath.ToSlash(rel), err
}
