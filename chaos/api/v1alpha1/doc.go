// Package v1alpha1 has the resources of the group chaos.trommel.dev: Disruptions, which are faults that last, with a
// beginning, an end and a state; what creates them; and RemoteClusters, in which they can be carried out.
//
// +kubebuilder:object:generate=true
// +groupName=chaos.trommel.dev
package v1alpha1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 object paths=.
//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 crd paths=. output:crd:dir=../../config/crd
