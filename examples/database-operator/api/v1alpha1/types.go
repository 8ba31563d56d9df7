// Package v1alpha1 is the API of the example's one resource, Database.
//
// +kubebuilder:object:generate=true
// +groupName=example.trommel.dev
package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object paths=. crd paths=. output:crd:dir=../../config/crd

// GroupVersion is the group and version of this package.
var GroupVersion = schema.GroupVersion{Group: "example.trommel.dev", Version: "v1alpha1"}

// AddToScheme registers the package's types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Database{}, &DatabaseList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// DatabaseSpec is the desired state of a Database.
type DatabaseSpec struct {
	// Replicas is the number of members. The volumes of removed members are deleted.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +optional
	Replicas int32 `json:"replicas"`

	// Storage is the size of each member's volume. It can grow, not shrink.
	Storage resource.Quantity `json:"storage"`

	// StorageClassName is the class of the volumes; empty: the cluster's default.
	//
	// +optional
	StorageClassName *string `json:"storageClassName,omitempty"`

	// Image is the database server's container image.
	//
	// +kubebuilder:default="registry.example/database:1.0"
	// +optional
	Image string `json:"image"`
}

// DatabaseStatus is the last observed state of a Database.
type DatabaseStatus struct {
	// ObservedGeneration is the generation of the spec that the rest of the status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// ReadyReplicas is the number of members that are ready.
	//
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// Phase is Pending, Ready or Deleting.
	//
	// +optional
	Phase string `json:"phase,omitempty"`

	// Credentials names the Secret with the superuser's password.
	//
	// +optional
	Credentials corev1.LocalObjectReference `json:"credentials,omitempty"`
}

// Phases of a Database.
const (
	PhasePending  = "Pending"
	PhaseReady    = "Ready"
	PhaseDeleting = "Deleting"
)

// Database is a database server with replicas.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:singular=database
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   DatabaseSpec   `json:"spec"`
	Status DatabaseStatus `json:"status,omitempty"`
}

// DatabaseList is a list of databases.
//
// +kubebuilder:object:root=true
type DatabaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Database `json:"items"`
}
