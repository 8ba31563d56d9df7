// Package simulated injects faults of nodes that KWOK simulates, and moves pods away from nodes, by nothing but the
// Kubernetes API.
package simulated

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
)

// Name is the backend's name.
const Name = "simulated"

// labelProcessNode marks the node whose pods are local processes.
const labelProcessNode = "trommel.dev/process-node"

// Backend implements inject.Backend.
type Backend struct {
	connect func() (kubernetes.Interface, error)
}

// New returns a backend. connect is called when the API is needed.
func New(connect func() (*rest.Config, error)) *Backend {
	return &Backend{connect: sync.OnceValues(func() (kubernetes.Interface, error) {
		config, err := connect()
		if err != nil {
			return nil, fmt.Errorf("connect to the API server: %w", err)
		}
		return kubernetes.NewForConfig(config)
	})}
}

// Name implements inject.Backend.
func (b *Backend) Name() string { return Name }

// New implements inject.Backend.
func (b *Backend) New(request inject.Request, notes *inject.Notes) (inject.Injection, error) {
	base := injection{backend: b, request: request, notes: notes}
	switch request.Kind {
	case v1alpha1.KindNodeFailure:
		f := &nodeFailure{injection: base}
		return f, json.Unmarshal(request.Spec, &f.spec)
	case v1alpha1.KindPodReplacement:
		r := &podReplacement{injection: base}
		return r, json.Unmarshal(request.Spec, &r.spec)
	}
	return nil, inject.Unsupported("the node %s is simulated, and %s needs a process", request.Target.Node,
		request.Kind)
}

// injection is what both kinds share.
type injection struct {
	backend *Backend
	request inject.Request
	notes   *inject.Notes
}

func (i *injection) client() (kubernetes.Interface, error) { return i.backend.connect() }

// node reads the target's node. Forbidden means that the cluster's owner does not want these kinds.
func (i *injection) node(ctx context.Context) (kubernetes.Interface, *corev1.Node, error) {
	client, err := i.client()
	if err != nil {
		return nil, nil, err
	}
	node, err := client.CoreV1().Nodes().Get(ctx, i.request.Target.Node, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		return nil, nil, inject.Unsupported("the injector's service account has no permission: %v", err)
	}
	return client, node, err
}

// patchNode patches a node, or its status.
func patchNode(ctx context.Context, client kubernetes.Interface, name string, patch any, subresources ...string) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, data, metav1.PatchOptions{},
		subresources...)
	return err
}

// object is a JSON object.
type object = map[string]any
