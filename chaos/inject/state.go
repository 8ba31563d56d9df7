package inject

import (
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
)

// DefaultStateFile is where Kubernetes reads a container's termination message.
const DefaultStateFile = corev1.TerminationMessagePathDefault

// longestError is how much of an error is reported: a termination message has at most 4096 bytes.
const longestError = 2048

// write writes the state into a file. The file stays the same one: Kubernetes has mounted it.
func (s State) write(file string) error {
	if file == "" {
		return nil
	}
	if len(s.Error) > longestError {
		s.Error = s.Error[:longestError] + "…"
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}

// StateOf returns what an injector reported in its termination message. It is empty if it reported nothing, for
// instance because it was killed.
func StateOf(t *corev1.ContainerStateTerminated) State {
	var s State
	if t == nil || json.Unmarshal([]byte(t.Message), &s) != nil {
		return State{}
	}
	return s
}

// Reported returns what the injector of a chaos pod reported when it ended by itself or with its pod, unless it runs
// again.
func Reported(pod *corev1.Pod) State {
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		switch {
		case c.State.Terminated != nil:
			return StateOf(c.State.Terminated)
		case c.State.Waiting != nil: // for its restart
			return StateOf(c.LastTerminationState.Terminated)
		}
	}
	return State{}
}
