package volumes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Objects reads objects to which a pod refers.
type Objects struct {
	Client    kubernetes.Interface
	Namespace string
}

// ConfigMap returns nil for a missing optional ConfigMap.
func (o Objects) ConfigMap(ctx context.Context, name string, optional *bool) (*corev1.ConfigMap, error) {
	cm, err := o.Client.CoreV1().ConfigMaps(o.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return cm, nil
}

// Secret returns nil for a missing optional Secret.
func (o Objects) Secret(ctx context.Context, name string, optional *bool) (*corev1.Secret, error) {
	s, err := o.Client.CoreV1().Secrets(o.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && isTrue(optional) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func isTrue(b *bool) bool { return b != nil && *b }
