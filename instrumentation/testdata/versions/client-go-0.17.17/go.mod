module example.com/versions

go 1.13

require (
	github.com/json-iterator/go v1.1.10
	k8s.io/api v0.17.17
	k8s.io/apimachinery v0.17.17
	k8s.io/client-go v12.0.0+incompatible
	sigs.k8s.io/controller-runtime v0.5.14
)

replace k8s.io/client-go => k8s.io/client-go v0.17.17
