package processnode

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/processnode/address"
)

// writeStatuses writes the pod's status whenever it has changed, until ctx ends.
func (p *pod) writeStatuses(ctx context.Context) {
	if !p.isInjector() { // a fault waits for its start, which this write would delay
		p.touch()
	}
	for {
		select {
		case <-p.dirty:
		case <-ctx.Done():
			return
		}
		delay := 50 * time.Millisecond
		for {
			err := p.writeStatus(ctx)
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil {
				break
			}
			p.node.log.Warn("write pod status", "namespace", p.namespace, "pod", p.name, "error", err)
			if clock.Sleep(ctx, delay) != nil {
				return
			}
			delay = min(2*delay, 2*time.Second)
		}
	}
}

// writeStatus writes the node's part of the status and does not change other writers' conditions.
func (p *pod) writeStatus(ctx context.Context) error {
	p.node.mu.Lock()
	gone := p.gone || p.node.config.Unregistered
	p.node.mu.Unlock()
	if gone {
		return nil
	}
	ctx, cancel := clock.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	patch, err := p.statusPatch()
	if err != nil {
		return err
	}
	_, err = p.node.client.CoreV1().Pods(p.namespace).Patch(ctx, p.name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	return err
}

func (p *pod) statusPatch() ([]byte, error) {
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.status())
	if err != nil {
		return nil, err
	}
	// Conditions are merged one by one, so a reason that no longer applies must be removed explicitly.
	conditions, _, err := unstructured.NestedSlice(status, "conditions")
	if err != nil {
		return nil, err
	}
	for _, c := range conditions {
		if c := c.(map[string]any); c["reason"] == nil {
			c["reason"] = nil
		}
	}
	status["conditions"] = conditions
	return json.Marshal(map[string]any{
		// The API server refuses the patch if another pod has the name by now.
		"metadata": map[string]any{"uid": p.uid},
		"status":   status,
	})
}

func (p *pod) status() *corev1.PodStatus {
	p.node.mu.Lock()
	defer p.node.mu.Unlock()
	s := &corev1.PodStatus{
		Phase:              p.phaseLocked(),
		ObservedGeneration: p.object.Generation,
		HostIP:             address.HostIP,
		HostIPs:            []corev1.HostIP{{IP: address.HostIP}},
		PodIP:              p.address.IP.String(),
		PodIPs:             []corev1.PodIP{{IP: p.address.IP.String()}},
		StartTime:          &p.started,
	}
	allReady := p.initialized
	for _, c := range p.init {
		s.InitContainerStatuses = append(s.InitContainerStatuses, c.statusLocked())
	}
	for _, c := range p.containers {
		status := c.statusLocked()
		s.ContainerStatuses = append(s.ContainerStatuses, status)
		allReady = allReady && status.Ready
	}
	done := s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed
	reason := ""
	switch {
	case done:
		reason = "PodCompleted"
	case !allReady:
		reason = "ContainersNotReady"
	}
	ready := p.readyLocked()
	s.Conditions = []corev1.PodCondition{
		p.conditions.of(p.object, corev1.PodReadyToStartContainers, p.preparing == nil && !done, ""),
		p.conditions.of(p.object, corev1.PodInitialized, p.initialized, ""),
		p.conditions.of(p.object, corev1.ContainersReady, allReady, reason),
		p.conditions.of(p.object, corev1.PodReady, ready, reason),
	}
	return s
}

// readyLocked reports whether all containers are ready and all readiness gates open.
func (p *pod) readyLocked() bool {
	ready := p.initialized
	for _, c := range p.containers {
		ready = ready && c.statusLocked().Ready
	}
	for _, gate := range p.spec.ReadinessGates {
		ready = ready && conditionTrue(p.object, gate.ConditionType)
	}
	return ready
}

func conditionTrue(o *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range o.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// conditions are a pod's conditions.
type conditions struct {
	now         func() time.Time
	transitions map[corev1.PodConditionType]corev1.PodCondition
}

// of returns a condition. It keeps the time of the last transition while the status does not change.
func (all *conditions) of(o *corev1.Pod, kind corev1.PodConditionType, yes bool, reason string) corev1.PodCondition {
	c := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason,
		ObservedGeneration: o.Generation}
	if yes {
		c.Status, c.Reason = corev1.ConditionTrue, ""
	}
	old, ok := all.transitions[kind]
	if !ok || old.Status != c.Status {
		old = corev1.PodCondition{Status: c.Status, LastTransitionTime: metav1.NewTime(all.now())}
		all.transitions[kind] = old
	}
	c.LastTransitionTime = old.LastTransitionTime
	return c
}

func (p *pod) phaseLocked() corev1.PodPhase {
	finished, failed, started := true, false, false
	for _, c := range p.containers {
		started = started || c.starts > 0
		finished = finished && c.final
		failed = failed || c.last != nil && c.last.record.ExitCode != 0
	}
	if !p.initialized {
		for _, c := range p.init {
			// It will not run again, otherwise it would have been restarted.
			if c.final && !c.isSidecar() && c.last != nil && c.last.record.ExitCode != 0 {
				return corev1.PodFailed
			}
		}
	}
	switch {
	case !started:
		return corev1.PodPending
	case finished && failed:
		return corev1.PodFailed
	case finished:
		return corev1.PodSucceeded
	}
	return corev1.PodRunning
}

func (c *container) statusLocked() corev1.ContainerStatus {
	idle := c.program.idle && c.pod.preparing == nil && (c.isInit || c.pod.initialized)
	started := c.current != nil || idle
	s := corev1.ContainerStatus{
		Name:         c.spec.Name,
		Image:        c.spec.Image,
		ImageID:      c.program.path,
		RestartCount: int32(max(c.starts-1, 0)),
		Ready:        idle || c.ready && (c.current == nil || !c.current.frozen),
		Started:      &started,
	}
	switch {
	case idle:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: c.pod.started}
	case c.current != nil:
		s.ContainerID = c.id(c.current)
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.current.record.Started)}
	case c.final && c.last != nil:
		s.ContainerID = c.id(c.last)
		s.State.Terminated = c.terminated(c.last)
		s.Ready = c.isInit && c.last.record.ExitCode == 0
	default:
		s.State.Waiting = c.waitingLocked()
	}
	if c.last != nil && s.State.Terminated == nil {
		s.ContainerID = c.id(c.last)
		s.LastTerminationState.Terminated = c.terminated(c.last)
	}
	if c.current != nil {
		s.ContainerID = c.id(c.current)
	}
	return s
}

func (c *container) waitingLocked() *corev1.ContainerStateWaiting {
	w := &corev1.ContainerStateWaiting{Reason: c.waiting}
	switch {
	case c.pod.preparing != nil:
		w.Reason, w.Message = "CreateContainerConfigError", c.pod.preparing.Error()
	case c.failure != nil:
		w.Reason, w.Message = "RunContainerError", c.failure.Error()
	case c.waiting == "Held":
		w.Message = "killed by a test plan, which has not started it again"
	case c.waiting == "" && !c.isInit && !c.pod.initialized && len(c.pod.init) > 0:
		w.Reason = "PodInitializing"
	case c.waiting == "":
		w.Reason = "ContainerCreating"
	}
	return w
}

func (c *container) terminated(r *run) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{
		ExitCode:    int32(r.record.ExitCode),
		Reason:      "Completed",
		StartedAt:   metav1.NewTime(r.record.Started),
		FinishedAt:  metav1.NewTime(r.record.Ended),
		ContainerID: c.id(r),
		Message:     r.message,
	}
	if r.record.ExitCode != 0 {
		t.Reason, t.Message = "Error", cmp.Or(r.record.MetMachine, r.message)
	}
	return t
}

func (c *container) id(r *run) string { return fmt.Sprintf("process://%d", r.record.PID) }
