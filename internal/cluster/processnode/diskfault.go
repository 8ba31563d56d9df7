package processnode

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
)

// diskRule is a fault of files as a container's processes read it; see the hooks in syscall.
type diskRule struct {
	// kind is fail (operations, number of the error, percentage) or slow (bytes per second of reads and of writes).
	kind    string
	numbers []uint64
	paths   []string
}

// String returns a line.
func (r *diskRule) String() string {
	fields := []string{r.kind}
	for _, n := range r.numbers {
		fields = append(fields, fmt.Sprint(n))
	}
	return strings.Join(append(fields, r.paths...), "\t") + "\n"
}

// The errors of DiskFailure, and its operations as the hooks know them.
var (
	diskErrors = map[string]syscall.Errno{
		"": syscall.EIO, "EIO": syscall.EIO, "ENOSPC": syscall.ENOSPC, "EACCES": syscall.EACCES, "EROFS": syscall.EROFS,
		"ENOENT": syscall.ENOENT, "EDQUOT": syscall.EDQUOT, "EMFILE": syscall.EMFILE,
	}
	diskOperations = map[string]uint64{"open": 1, "read": 2, "write": 4, "sync": 8}
)

func prepareDiskFailure(_ context.Context, p *pod, f fault.Fault) (func() (func(), error), error) {
	var spec v1alpha1.DiskFailure
	if err := decodeSpec(f, &spec); err != nil {
		return nil, err
	}
	number, ok := diskErrors[spec.Error]
	if !ok {
		return nil, fmt.Errorf("%w: error %q", errInvalid, spec.Error)
	}
	operations := uint64(0)
	for _, o := range spec.Operations {
		if diskOperations[o] == 0 {
			return nil, fmt.Errorf("%w: operation %q", errInvalid, o)
		}
		operations |= diskOperations[o]
	}
	if operations == 0 {
		operations = diskOperations["open"]
	}
	share := uint64(100)
	if spec.Percentage != nil {
		share = uint64(*spec.Percentage)
	}
	return prepareDisk(p, f, spec.Paths, "fail", operations, uint64(number), share)
}

func prepareDiskPressure(_ context.Context, p *pod, f fault.Fault) (func() (func(), error), error) {
	var spec v1alpha1.DiskPressure
	if err := decodeSpec(f, &spec); err != nil {
		return nil, err
	}
	var speeds []uint64
	for _, speed := range []*int64{spec.ReadBytesPerSecond, spec.WriteBytesPerSecond} {
		if speed == nil {
			speed = new(int64)
		}
		speeds = append(speeds, uint64(max(*speed, 0)))
	}
	return prepareDisk(p, f, []string{spec.Path}, "slow", speeds...)
}

// prepareDisk gives the target's programs a rule for files. They carry it out themselves.
func prepareDisk(p *pod, f fault.Fault, paths []string, kind string, numbers ...uint64) (func() (func(), error),
	error) {
	containers, err := p.targets(f)
	if err == nil {
		err = p.heedsFaults(containers)
	}
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if !filepath.IsAbs(path) || strings.ContainsAny(path, "\t\n") {
			return nil, fmt.Errorf("%w: %q is not the path of a file", errInvalid, path)
		}
	}
	return func() (func(), error) {
		ends := map[*container]func() error{}
		end := func() {
			for c, end := range ends {
				if err := end(); err != nil {
					p.node.log.Error("end a fault of files", "namespace", p.namespace, "pod", p.name,
						"container", c.spec.Name, "error", err)
				}
			}
		}
		for _, c := range containers {
			rule := &diskRule{kind: kind, numbers: numbers}
			for _, path := range paths {
				rule.paths = append(rule.paths, c.files.names(filepath.Clean(path))...)
			}
			// These belong to Trommel, or are what it puts into every pod.
			kept := append(c.files.names(serviceAccountMount), p.node.config.Dir)
			err := c.page.change(kept, func(rules []*diskRule) []*diskRule { return append(rules, rule) })
			if err != nil {
				end()
				return nil, fmt.Errorf("tell container %q of a fault of files: %w", c.spec.Name, err)
			}
			ends[c] = func() error {
				return c.page.change(kept, func(rules []*diskRule) []*diskRule {
					return slices.DeleteFunc(rules, func(r *diskRule) bool { return r == rule })
				})
			}
		}
		return end, nil
	}, nil
}

// heedsFaults returns an error unless the containers' programs heed faults that begin while they run.
func (p *pod) heedsFaults(containers []*container) error {
	var errs []error
	for _, c := range containers {
		p.node.mu.Lock()
		started, hooked := c.starts > 0, c.page != nil
		p.node.mu.Unlock()
		switch {
		case !started:
			errs = append(errs, fmt.Errorf("container %q has not started", c.spec.Name))
			continue
		case hooked:
			heeds, err := p.node.heeding.has(c.path)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			hooked = heeds
		}
		if !hooked {
			errs = append(errs, unsupported("the program of container %q has no hooks for faults in its standard "+
				"library: build it with `build:`, by this version of Trommel", c.spec.Name))
		}
	}
	return errors.Join(errs...)
}
