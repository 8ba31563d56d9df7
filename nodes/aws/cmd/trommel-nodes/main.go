// The command trommel-nodes runs the controllers of node cycling with Auto Scaling groups of AWS.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trommel-dev/trommel/nodes/aws"
	"github.com/trommel-dev/trommel/nodes/command"
	"github.com/trommel-dev/trommel/nodes/provider"
)

func main() {
	if newCommand().Execute() != nil {
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var region, tag string
	return command.New(map[string]command.Provider{
		aws.Name: {
			New: func(ctrl.Manager) (provider.Provider, error) { return newProvider(region, tag) },
			Flags: func(cmd *cobra.Command) {
				cmd.Flags().StringVar(&region, "region", "", "region of AWS (default: as the AWS CLI finds it)")
				cmd.Flags().StringVar(&tag, "tag-detached", "", "`key` of a tag that instances have, with the name of "+
					"their group, while they are detached from it (default: none)")
			},
		},
	})
}

// newProvider makes the provider as the environment and the files of the AWS CLI say. Credentials are read when they
// are needed.
func newProvider(region, tag string) (provider.Provider, error) {
	var options []func(*config.LoadOptions) error
	if region != "" {
		options = append(options, config.WithRegion(region))
	}
	c, err := config.LoadDefaultConfig(context.Background(), options...)
	if err != nil {
		return nil, err
	}
	if c.Region == "" {
		return nil, errors.New("no region of AWS: use --region or the environment variable AWS_REGION")
	}
	p := aws.New(c)
	p.Tag = tag
	return p, nil
}
