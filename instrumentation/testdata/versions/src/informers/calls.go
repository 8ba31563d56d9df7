package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

func get(ctx context.Context, client typedv1.ConfigMapInterface, name string) error {
	_, err := client.Get(ctx, name, metav1.GetOptions{})
	return err
}

func create(ctx context.Context, client typedv1.ConfigMapInterface, m *corev1.ConfigMap) error {
	_, err := client.Create(ctx, m, metav1.CreateOptions{})
	return err
}
