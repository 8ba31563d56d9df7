package main

import (
	"io"
	"strings"
	"testing"

	"github.com/trommel-dev/trommel/nodes/aws"
)

func TestProvider(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_CONFIG_FILE": "/does/not/exist",
		"AWS_SHARED_CREDENTIALS_FILE": "/does/not/exist", "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	if _, err := newProvider("", ""); err == nil || !strings.Contains(err.Error(), "use --region") {
		t.Errorf("without a region: %v", err)
	}
	if p, err := newProvider("eu-central-1", ""); err != nil || p.Name() != aws.Name {
		t.Errorf("with a flag: %v, %v", p, err)
	}
	t.Setenv("AWS_REGION", "eu-central-1")
	if p, err := newProvider("", ""); err != nil || p.Name() != aws.Name {
		t.Errorf("with the environment: %v, %v", p, err)
	}
}

func TestOnlyItsOwnProvider(t *testing.T) {
	cmd := newCommand()
	cmd.SetArgs([]string{"--provider", "simulated"})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	if err := cmd.Execute(); err == nil || err.Error() != `unknown provider "simulated" (known: aws)` {
		t.Error(err)
	}
}
