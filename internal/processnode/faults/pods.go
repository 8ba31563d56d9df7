package faults

import "github.com/trommel-dev/trommel/chaos/inject/fault"

// SocketVariable is the environment variable that names the set's socket to injectors.
const SocketVariable = fault.EnvSocket

// IsInjector reports whether a pod with these annotations begins and ends faults of other pods.
func IsInjector(annotations map[string]string) bool {
	return annotations[fault.AnnotationInjector] == "true"
}

// ReadyFile returns the file that exists in an injector's container while its fault is in effect; empty: unknown.
func ReadyFile(annotations map[string]string) string { return annotations[fault.AnnotationReadyFile] }
