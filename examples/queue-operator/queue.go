package main

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The phases of a Queue.
const (
	pending = "Pending"
	ready   = "Ready"
	failed  = "Failed"
)

// Queue has users, each with an account.
type Queue struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Users []string `json:"users,omitempty"`
	} `json:"spec"`
	Status status `json:"status,omitzero"`
}

type status struct {
	Phase              string `json:"phase,omitempty"`
	Attempts           int    `json:"attempts,omitempty"` // so far, with this generation
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
}

// finished reports whether nothing is to be done that is not done already.
func (q *Queue) finished() bool {
	return q.Status.Phase == ready && q.Status.ObservedGeneration == q.Generation
}

// DeepCopyObject implements runtime.Object.
func (q *Queue) DeepCopyObject() runtime.Object {
	c := *q
	q.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Users = slices.Clone(q.Spec.Users)
	return &c
}

// QueueList is a list of them.
type QueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []Queue `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *QueueList) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = nil
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopyObject().(*Queue))
	}
	return &c
}

func addQueues(scheme *runtime.Scheme) {
	version := schema.GroupVersion{Group: "example.trommel.dev", Version: "v1alpha1"}
	scheme.AddKnownTypes(version, &Queue{}, &QueueList{})
	metav1.AddToGroupVersion(scheme, version)
}
