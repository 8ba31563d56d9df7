package linux

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
)

func init() {
	register(v1alpha1.KindDiskPressure, func(base injection, spec v1alpha1.DiskPressure) inject.Injection {
		return &diskPressure{injection: base, spec: spec}
	})
}

// diskPressure limits the throughput of a block device in the containers' cgroups.
type diskPressure struct {
	injection
	spec v1alpha1.DiskPressure
}

// throttle is a limit in a file of a cgroup: io.max of version 2, or one of blkio's of version 1.
type throttle struct {
	File string `json:"file"`
	// Line sets it, and Before is what was there.
	Line   string `json:"line"`
	Before string `json:"before"`
}

// Check implements inject.Injection.
func (i *diskPressure) Check(context.Context) error {
	if err := privileged(); err != nil {
		return err
	}
	if i.request.Target.NodeLevel {
		return inject.Unsupported("the throughput of a whole node cannot be limited: choose pods")
	}
	_, err := i.throttles()
	return err
}

// throttles finds out what must be limited.
func (i *diskPressure) throttles() ([]throttle, error) {
	containers, err := i.containers()
	if err != nil {
		return nil, err
	}
	var all []throttle
	for _, c := range containers {
		device, err := i.node.device(c.init, i.spec.Path)
		if err != nil {
			return nil, err
		}
		found, err := i.throttlesIn(c, device)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (i *diskPressure) throttlesIn(c container, device string) ([]throttle, error) {
	for _, dir := range c.cgroups {
		if file := filepath.Join(dir, "io.max"); exists(file) {
			before, err := settingOf(file, device)
			if err != nil {
				return nil, err
			}
			line := device
			for _, limit := range []struct {
				key   string
				value *int64
			}{{"rbps", i.spec.ReadBytesPerSecond}, {"wbps", i.spec.WriteBytesPerSecond}} {
				if limit.value != nil {
					line += fmt.Sprintf(" %s=%d", limit.key, *limit.value)
				}
			}
			if before == "" {
				before = "rbps=max wbps=max riops=max wiops=max"
			}
			return []throttle{{file, line, device + " " + before}}, nil
		}
		if !exists(filepath.Join(dir, "blkio.throttle.read_bps_device")) {
			continue
		}
		var all []throttle
		for _, limit := range []struct {
			file  string
			value *int64
		}{
			{"blkio.throttle.read_bps_device", i.spec.ReadBytesPerSecond},
			{"blkio.throttle.write_bps_device", i.spec.WriteBytesPerSecond},
		} {
			if limit.value == nil {
				continue
			}
			file := filepath.Join(dir, limit.file)
			before, err := settingOf(file, device)
			if err != nil {
				return nil, err
			}
			if before == "" {
				before = "0" // none
			}
			all = append(all, throttle{file, fmt.Sprintf("%s %d", device, *limit.value), device + " " + before})
		}
		return all, nil
	}
	return nil, inject.Unsupported("the containers' cgroups cannot limit the throughput (no controller io or blkio)")
}

// settingOf returns what a cgroup's file says about a device; empty if that is nothing.
func settingOf(file, device string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read limit: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), device+" "); ok {
			return rest, nil
		}
	}
	return "", nil
}

// device returns the number of the disk with a path of a process, as MAJOR:MINOR.
func (n Node) device(pid int, path string) (string, error) {
	f, err := n.openIn(pid, path, unix.O_PATH)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return "", fmt.Errorf("find the disk of %s: %w", path, err)
	}
	number := stat.Dev
	if unix.Major(number) == 0 {
		// An overlay has its files in a directory of the node; others, such as btrfs, name their device.
		if number, err = n.deviceOfMount(pid, int(f.Fd())); err != nil {
			return "", fmt.Errorf("find the disk of %s: %w", path, err)
		}
	}
	device := fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number))
	// Limits are for whole disks.
	sys, err := filepath.EvalSymlinks("/sys/dev/block/" + device)
	if errors.Is(err, fs.ErrNotExist) {
		return "", inject.Unsupported("%s is on no disk of the node", path)
	}
	if err != nil {
		return "", fmt.Errorf("find the disk of %s: %w", path, err)
	}
	if !exists(filepath.Join(sys, "partition")) {
		return device, nil
	}
	whole, err := os.ReadFile(filepath.Join(filepath.Dir(sys), "dev"))
	if err != nil {
		return "", fmt.Errorf("find the disk of %s: %w", path, err)
	}
	return strings.TrimSpace(string(whole)), nil
}

// deviceOfMount returns the device behind the mount of an open file of a process.
func (n Node) deviceOfMount(pid, fd int) (uint64, error) {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return 0, err
	}
	id := ""
	for line := range strings.Lines(string(info)) {
		if rest, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			id = strings.TrimSpace(rest)
		}
	}
	mounts, err := os.Open(filepath.Join(n.Proc, strconv.Itoa(pid), "mountinfo"))
	if err != nil {
		return 0, err
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		dash := slices.Index(fields, "-")
		if len(fields) < 6 || fields[0] != id || dash < 0 || len(fields) < dash+4 {
			continue
		}
		kind, source, options := fields[dash+1], fields[dash+2], fields[dash+3]
		file := source
		if kind == "overlay" {
			for option := range strings.SplitSeq(options, ",") {
				if upper, ok := strings.CutPrefix(option, "upperdir="); ok {
					file = upper
				}
			}
		}
		if !filepath.IsAbs(file) {
			return 0, inject.Unsupported("the file system %s (%s) has no disk", kind, source)
		}
		f, err := n.openIn(n.Host, file, unix.O_PATH)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		var stat unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
			return 0, err
		}
		if stat.Mode&unix.S_IFMT == unix.S_IFBLK {
			return stat.Rdev, nil
		}
		if unix.Major(stat.Dev) == 0 {
			return 0, inject.Unsupported("the file system %s (%s) has no disk of its own", kind, source)
		}
		return stat.Dev, nil
	}
	return 0, inject.Unsupported("its mount is unknown")
}

// Inject implements inject.Injection.
func (i *diskPressure) Inject(context.Context) error {
	all, err := i.throttles()
	if err != nil {
		return err
	}
	if err := i.notes.Save(all); err != nil {
		return err
	}
	for _, t := range all {
		if err := os.WriteFile(t.File, []byte(t.Line), 0); err != nil {
			return fmt.Errorf("limit the throughput: %w", err)
		}
	}
	return nil
}

// Clean implements inject.Injection.
func (i *diskPressure) Clean(context.Context) error {
	var all []throttle
	if saved, err := i.notes.Load(&all); !saved || err != nil {
		return err
	}
	var errs []error
	for _, t := range all {
		err := os.WriteFile(t.File, []byte(t.Before), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("put the limit of throughput back: %w", err))
		}
	}
	return errors.Join(errs...)
}
