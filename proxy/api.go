package proxy

import "github.com/agl-go/agl"

// API is the interface that a backend speaks.
type API string

// The interfaces of backends.
const (
	// APIOpenAI is OpenAI's, as inference engines (vLLM, SGLang, llama.cpp), the
	// embedded policy and most hosted services speak it.
	APIOpenAI API = ""
	// APIAzure is OpenAI's as Azure serves it: the base URL is the resource's,
	// such as https://NAME.openai.azure.com, the backend model is the deployment,
	// and the key goes into the header api-key.
	APIAzure API = "azure"
	// APIAnthropic is Anthropic's Messages.
	APIAnthropic API = "anthropic"
)

// check refuses an interface that there is not.
func (a API) check(field string) error {
	switch a {
	case APIOpenAI, APIAzure, APIAnthropic:
		return nil
	}
	return agl.Errorf(agl.CodeInvalid, "%s: got %q, must be empty (OpenAI), %q or %q", field, string(a), string(APIAzure), string(APIAnthropic))
}
