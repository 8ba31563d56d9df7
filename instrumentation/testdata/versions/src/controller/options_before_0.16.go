package main

import ctrl "sigs.k8s.io/controller-runtime"

func options() ctrl.Options { return ctrl.Options{MetricsBindAddress: "0"} }
