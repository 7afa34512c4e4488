package wire

// SignalParams are the parameters of a request for what an adapter makes of a rollout's spans.
type SignalParams struct {
	Source string // which spans hold the calls: proxy or tracer
}

// Signal returns the parameters of such a request.
func Signal(p *SignalParams) Query {
	return Query{members: members{{"source", &p.Source, optional}}}
}

// BatchParams are the parameters of a batch.
type BatchParams struct {
	RolloutIDs                               []string
	Source, Level                            string
	PromptLength, ResponseLength, PadTokenID int
}

// Batch returns the body of a request for a batch.
func Batch(p *BatchParams) Query {
	return Query{members: members{
		{"rollout_ids", &p.RolloutIDs, required},
		{"source", &p.Source, optional},
		{"level", &p.Level, optional},
		{"prompt_length", &p.PromptLength, optional},
		{"response_length", &p.ResponseLength, optional},
		{"pad_token_id", &p.PadTokenID, optional},
	}}
}
