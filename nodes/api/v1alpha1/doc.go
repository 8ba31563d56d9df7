// Package v1alpha1 has the resources of node cycling, group nodes.trommel.dev: CycleNodeRequest, which replaces the
// nodes of a group, CycleNodeStatus, one for each node that is being replaced, and NodeGroup, which watches groups.
// Fields that Atlassian's Cyclops has too have the names that they have there. SimulatedNodeGroup and ProviderCall are
// a cloud for tests.
//
// +kubebuilder:object:generate=true
// +groupName=nodes.trommel.dev
package v1alpha1

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 object paths=.
//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0 crd paths=. output:crd:dir=../../config/crd
