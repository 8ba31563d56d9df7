package main

import (
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func options() ctrl.Options { return ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}} }
