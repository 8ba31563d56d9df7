package faults

import (
	"context"
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

var (
	_ = register(v1alpha1.KindDiskFailure, prepareDiskFailure)
	_ = register(v1alpha1.KindDiskPressure, prepareDiskPressure)
)

func prepareDiskFailure(_ context.Context, p *Pod, f fault.Fault, spec v1alpha1.DiskFailure) (beginFunc, error) {
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

func prepareDiskPressure(_ context.Context, p *Pod, f fault.Fault, spec v1alpha1.DiskPressure) (beginFunc, error) {
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
func prepareDisk(p *Pod, f fault.Fault, paths []string, kind string, numbers ...uint64) (beginFunc, error) {
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
		ends := map[Container]func() error{}
		end := func() {
			for c, end := range ends {
				if err := end(); err != nil {
					p.set.log.Error("end a fault of files", "namespace", p.config.Namespace, "pod", p.config.Name,
						"container", c.Name(), "error", err)
				}
			}
		}
		for _, c := range containers {
			rule := &diskRule{kind: kind, numbers: numbers}
			for _, path := range paths {
				rule.paths = append(rule.paths, c.Paths(filepath.Clean(path))...)
			}
			// These belong to Trommel, or are what it puts into every pod.
			kept := append(c.Paths(p.set.config.ServiceAccount), p.set.config.Dir)
			page := p.page(c)
			err := page.change(kept, func(rules []*diskRule) []*diskRule { return append(rules, rule) })
			if err != nil {
				end()
				return nil, fmt.Errorf("tell container %q of a fault of files: %w", c.Name(), err)
			}
			ends[c] = func() error {
				return page.change(kept, func(rules []*diskRule) []*diskRule {
					return slices.DeleteFunc(rules, func(r *diskRule) bool { return r == rule })
				})
			}
		}
		return end, nil
	}, nil
}
