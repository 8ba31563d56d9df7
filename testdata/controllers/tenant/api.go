//go:build !plain

package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func init() { questions["api"] = api }

func api(ctx context.Context, name string) (string, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return "", err
	}
	if name != "" {
		config.Host = name
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	_, err = client.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	return fmt.Sprint(err), nil
}
