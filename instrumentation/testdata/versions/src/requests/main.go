// Command requests creates the ConfigMaps that its arguments name, one after the other, and prints what it got.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

type result struct {
	Error   string
	Reason  string
	TimeOut bool
	Ended   bool // of a context, as callers tell
}

func main() {
	config := &rest.Config{Host: os.Getenv("API_SERVER")}
	config.ContentType = os.Getenv("CONTENT_TYPE")
	client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	for _, name := range os.Args[1:] {
		m := &corev1.ConfigMap{}
		m.Name = name
		var r result
		if err := create(context.Background(), client, m); err != nil {
			var timeout net.Error
			r = result{
				Error: err.Error(), Reason: string(apierrors.ReasonForError(err)),
				TimeOut: errors.As(err, &timeout) && timeout.Timeout(), Ended: errors.Is(err, context.DeadlineExceeded),
			}
		}
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			panic(err)
		}
	}
}
