package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/gateway"
	"github.com/agl-go/agl/proxy"
)

// gatewayFlags are the flags of agl store for the API of Agent-lightning v1.0.
type gatewayFlags struct {
	Gateway          bool         `help:"Also serve the API of Agent-lightning v1.0, under /api and /proxy, for its trainer, controllers and agents."`
	GatewayKey       flags.Token  `env:"AGL_KEY" placeholder:"KEY" help:"Require this key of every request to that API. Default: the value of --token. Without --token, the rest of the store requires it as its token."`
	GatewayModel     string       `placeholder:"NAME" help:"The model that its agents' calls go to, whatever they ask for. Default: ${gatewayModel}."`
	GatewayPrice     *flags.Price `placeholder:"PROMPT,COMPLETION" help:"What the tokens of that model cost, in dollars per million (0.15,0.6), for keys with a budget in dollars."`
	GatewayTrainTemp *float64     `name:"gateway-train-temperature" placeholder:"T" help:"The temperature of calls in training. Default: 1."`
	GatewayValTemp   *float64     `name:"gateway-val-temperature" placeholder:"T" help:"The temperature of calls in validation. Default: 0.7."`
	GatewayNoLogprob bool         `name:"gateway-no-logprobs" help:"Do not ask for log-probabilities in training."`
	GatewayExperts   bool         `name:"gateway-routed-experts" help:"Ask for the routed experts of each token in training."`
	GatewayStreams   bool         `help:"Let agents ask for streams. Without it they are refused, as by the original server."`
	GatewayTranslate bool         `help:"Let agents use OpenAI's Responses and Anthropic's Messages, too; backends get chat completions."`
	GatewayRunners   bool         `help:"Let runners of this store run its rollouts whose config names no local agent and no Kubernetes job."`
}

func (f *gatewayFlags) validate() error {
	if !f.Gateway && (*f != gatewayFlags{GatewayKey: f.GatewayKey}) {
		return errors.New("--gateway-…: these flags need --gateway")
	}
	if !f.Gateway && f.GatewayKey != "" && string(f.GatewayKey) != os.Getenv("AGL_KEY") { // the variable may be for other programs
		return errors.New("--gateway-key: needs --gateway; without it the store asks for --token only")
	}
	for name, t := range map[string]*float64{"gateway-train-temperature": f.GatewayTrainTemp, "gateway-val-temperature": f.GatewayValTemp} {
		const most = 100
		if t != nil && !(*t >= 0 && *t <= most) {
			return fmt.Errorf("--%s=%v: must be between 0 and %d", name, *t, most)
		}
	}
	return nil
}

// openGateway returns the gateway that a config with the store describes, started, or nil without --gateway. The config's
// key is the store's token.
func (f *gatewayFlags) openGateway(ctx context.Context, config gateway.Config, settings *tls.Config) (*gateway.Gateway, error) {
	if !f.Gateway {
		return nil, nil
	}
	null := func(t *float64) (out agl.Null[float64]) {
		if t != nil {
			out = agl.Some(*t)
		}
		return out
	}
	backends := proxy.NewTransport()
	backends.TLSClientConfig = settings
	config.Transport = backends
	if f.GatewayPrice != nil {
		config.Price = &proxy.Price{Prompt: f.GatewayPrice.Prompt, Completion: f.GatewayPrice.Completion}
	}
	config.Key, config.Model = cmp.Or(string(f.GatewayKey), config.Key), f.GatewayModel
	config.TrainTemperature, config.ValTemperature = null(f.GatewayTrainTemp), null(f.GatewayValTemp)
	config.NoLogprobs, config.RoutedExperts = f.GatewayNoLogprob, f.GatewayExperts
	config.Runners, config.Streams, config.Translate = f.GatewayRunners, f.GatewayStreams, f.GatewayTranslate
	g, err := gateway.New(config)
	if err != nil {
		return nil, err
	}
	return g, g.Start(ctx)
}
