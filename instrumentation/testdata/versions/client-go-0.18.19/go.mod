module example.com/versions

go 1.14

require (
	github.com/json-iterator/go v1.1.10
	k8s.io/api v0.18.19
	k8s.io/apimachinery v0.18.19
	k8s.io/client-go v0.18.19
	sigs.k8s.io/controller-runtime v0.6.5
)
