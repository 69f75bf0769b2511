"""Wrong uses of the public API: type checkers find each."""

import torch
from torch import nn

import fxlab
from fxlab import MergeLinears, Session

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
x = torch.ones(2, 4)
session = Session(model, x)

fxlab.training_session(model, x)  # wrong: the name is not there
fxlab.sesion(model)  # wrong: the name is not there
fxlab.find_matches(model)  # wrong: it is in fxlab.rewriting
session.draw()  # wrong: a function takes the session
print(session.graph)  # wrong: session.graph_module.graph
session.aply("merge-linears")  # wrong: the name is not there
Session(model, x, x)  # wrong: inputs are one argument
Session(model, input_ids=x)  # wrong: inputs by name are a mapping
Session(model, [x])  # wrong: a list is no tuple
Session("model.pt2")  # wrong: a text is no model
session.apply(["merge-linears"])  # wrong: a list is no pass
session.apply("merge-linears", name="merge")  # wrong keyword
session.apply(3)  # wrong kind
session.undo(2)  # wrong count of arguments
fxlab.report(session, "report.html", mesure=False)  # wrong keyword
fxlab.verdict(model)  # wrong count of arguments
fxlab.verdict(model, model, [x])  # wrong: a list is no tuple
fxlab.draw(session, highlight=3)  # wrong kind
fxlab.benchmark(model)  # wrong: a model is no session
fxlab.compose("merge-linears", MergeLinears())  # wrong: a name is no transformation
fxlab.bisect(session, passes=[MergeLinears()])  # wrong keyword
fxlab.export(session, path=3)  # wrong kind
