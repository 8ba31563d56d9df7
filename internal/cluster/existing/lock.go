package existing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trommel-dev/trommel/internal/filelock"
)

// A run holds a Lease in each of its namespaces, which it renews. So a second run, on whatever machine, is refused. On
// this machine, a file that is locked says at once whether the holder lives.
const (
	leaseName    = "trommel-run"
	leaseLasts   = 40 * time.Second
	leaseRenewal = 10 * time.Second
	// annotationMachine on the Lease: the machine of its holder.
	annotationMachine = "trommel.dev/machine"
)

// InUseError says that another run has a namespace.
type InUseError struct{ Namespace, Holder, Until string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("another run of trommel uses namespace %s of the cluster: %s%s", e.Namespace, e.Holder, e.Until)
}

// machine names this machine, across its restarts.
func machine() string {
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(strings.TrimSpace(string(id))) > 0 {
		return strings.TrimSpace(string(id))
	}
	name, _ := os.Hostname()
	return name
}

// Lock takes exclusive use of the namespaces, on this machine and elsewhere. It also puts back Deployments that a dead
// run has left scaled to 0 without a journal on this machine.
func (c *Cluster) Lock() (unlock func(), err error) {
	file, err := os.OpenFile(c.journal.lockFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the use of %s: %w", c.access, err)
	}
	if err := filelock.Try(file); err != nil {
		_ = file.Close()
		if errors.Is(err, filelock.ErrLocked) {
			holder := "a process of this machine"
			if b, err := c.journal.read(); err == nil {
				holder = fmt.Sprintf("process %d of this machine", b.PID)
			}
			return nil, &InUseError{Namespace: strings.Join(c.namespaces, ", "), Holder: holder}
		}
		return nil, fmt.Errorf("lock the use of %s: %w", c.access, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var held []string
	release := func() {
		cancel()
		ending, done := context.WithTimeout(context.Background(), answerTimeout)
		defer done()
		for _, ns := range held {
			if err := c.admin.CoordinationV1().Leases(ns).Delete(ending, leaseName,
				metav1.DeleteOptions{}); err != nil &&
				!apierrors.IsNotFound(err) {
				c.log.Warn("delete the lease of a run", "namespace", ns, "error", err)
			}
		}
		_ = file.Close()
	}
	asking, done := context.WithTimeout(ctx, answerTimeout)
	defer done()
	for _, ns := range c.namespaces {
		took, err := c.takeLease(asking, ns)
		if err != nil {
			release()
			return nil, err
		}
		if took {
			held = append(held, ns)
		}
	}
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		c.renewLeases(ctx, held)
	}()
	unlock = func() {
		cancel()
		<-renewed
		release()
	}
	if _, err := c.journal.read(); err != nil {
		// Nothing here knows of an earlier run, but it may have been one of another machine.
		if err := c.putBackAnnotated(asking); err != nil {
			unlock()
			return nil, err
		}
	}
	return unlock, nil
}

func (c *Cluster) holder() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("process %d on %s", os.Getpid(), host)
}

// takeLease takes the Lease of a namespace; false: there is no such namespace.
func (c *Cluster) takeLease(ctx context.Context, namespace string) (bool, error) {
	leases := c.admin.CoordinationV1().Leases(namespace)
	holder, seconds, now := c.holder(), int32(leaseLasts/time.Second), metav1.NewMicroTime(time.Now())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: leaseName, Annotations: map[string]string{annotationMachine: machine()}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now,
		},
	}
	_, err := leases.Create(ctx, lease, metav1.CreateOptions{FieldManager: manager})
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsNotFound(err):
		return false, nil
	case !apierrors.IsAlreadyExists(err):
		return false, fmt.Errorf("take the lease of namespace %s: %w", namespace, err)
	}
	old, err := leases.Get(ctx, leaseName, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read the lease of namespace %s: %w", namespace, err)
	}
	by := "somebody"
	if old.Spec.HolderIdentity != nil {
		by = *old.Spec.HolderIdentity
	}
	until := time.Now()
	if old.Spec.RenewTime != nil {
		until = old.Spec.RenewTime.Add(leaseLasts)
	}
	// A run of other namespaces on this machine has another file.
	ours := old.Annotations[annotationMachine] == machine() && !alive(by)
	if left := time.Until(until); left > 0 && !ours {
		return false, &InUseError{namespace, by, fmt.Sprintf(" (if it is dead, its lease expires in %s)",
			left.Round(time.Second))}
	}
	lease.ResourceVersion, lease.UID = old.ResourceVersion, old.UID
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{FieldManager: manager}); err != nil {
		return false, fmt.Errorf("take the lease of namespace %s: %w", namespace, err)
	}
	return true, nil
}

// alive reports whether the holder, a process of this machine, still runs.
func alive(holder string) bool {
	var pid int
	if _, err := fmt.Sscanf(holder, "process %d on", &pid); err != nil || pid <= 0 {
		return false
	}
	if pid == os.Getpid() {
		return false // this process has locked the file, so it is an earlier one with its number, or an earlier run
	}
	return unix.Kill(pid, 0) == nil || errors.Is(unix.Kill(pid, 0), unix.EPERM)
}

// renewLeases renews the leases until ctx ends.
func (c *Cluster) renewLeases(ctx context.Context, namespaces []string) {
	tick := time.NewTicker(leaseRenewal)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, ns := range namespaces {
			leases := c.admin.CoordinationV1().Leases(ns)
			asking, cancel := context.WithTimeout(ctx, leaseRenewal)
			lease, err := leases.Get(asking, leaseName, metav1.GetOptions{})
			if err == nil {
				now := metav1.NewMicroTime(time.Now())
				lease.Spec.RenewTime = &now
				_, err = leases.Update(asking, lease, metav1.UpdateOptions{FieldManager: manager})
			}
			cancel()
			if err != nil && ctx.Err() == nil {
				c.log.Warn("renew the lease of a run", "namespace", ns, "error", err)
			}
		}
	}
}
