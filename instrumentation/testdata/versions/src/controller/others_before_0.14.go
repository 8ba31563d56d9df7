package main

import ctrl "sigs.k8s.io/controller-runtime"

// readOthers reads nothing: controller-runtime 0.8 fails to list objects without a Go type a second time.
func readOthers(ctrl.Manager) error { return nil }
