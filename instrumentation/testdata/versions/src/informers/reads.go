package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// serve lets the test read and write. The state of an object is its label of that name.
func serve(c *copier, synced func() bool) {
	configMaps := c.configMaps.ConfigMaps("default")
	serveWays(map[string]way{
		"get-lister": func(_ context.Context, name string) (string, error) {
			m, err := configMaps.Get(name)
			if apierrors.IsNotFound(err) {
				return "absent", nil
			}
			if err != nil {
				return "", err
			}
			return m.Labels["state"], nil
		},
		"list-lister": func(_ context.Context, name string) (string, error) {
			all, err := configMaps.List(labels.Everything())
			for _, m := range all {
				if m.Name == name {
					return m.Labels["state"], err
				}
			}
			return "absent", err
		},
		"get-secret": func(_ context.Context, name string) (string, error) {
			s, exists, err := c.secrets.GetByKey("default/" + name)
			if err != nil || !exists {
				return "absent", err
			}
			return s.(*corev1.Secret).Labels["state"], nil
		},
		"synced": func(context.Context, string) (string, error) { return fmt.Sprint(synced()), nil },
		"write": func(ctx context.Context, name string) (string, error) {
			return "done", create(ctx, c.client.CoreV1().ConfigMaps("default"),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
		},
		"probe": func(context.Context, string) (string, error) { return "ok", nil },
	})
}
